-- Environment module (Lmod) of a Trireme that was installed by `cmake --install build/release --prefix PREFIX`. Put it
-- into a folder of MODULEPATH as trireme/VERSION.lua, with the prefix below; then: module load trireme
local prefix = "/opt/trireme"

help([[Trireme trains deep networks over data, tensor and pipeline ranks.
trireme run JOB.yaml -n RANKS trains here;
trireme slurm-script JOB.yaml -o JOB.sbatch && sbatch JOB.sbatch under Slurm.]])
whatis("Name: Trireme")
whatis("Description: distributed training of deep networks")

conflict("trireme")
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
prepend_path("LD_LIBRARY_PATH", pathJoin(prefix, "lib"))
prepend_path("PKG_CONFIG_PATH", pathJoin(prefix, "lib/pkgconfig"))
setenv("TRIREME_HOME", prefix)
