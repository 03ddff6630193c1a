#!/usr/bin/env python3
"""The Debian packages on a machine of their own, installed as docs/operations/install.md says: it boots under systemd with cgroup
v2, and inside.py runs there. Its kernel is user-mode-linux (uml), which is a program, so no help of the hardware is needed, but has one
CPU and no cpuset; or Debian's own on two CPUs that QEMU imitates (qemu), which is many times slower where there is no /dev/kvm. It stands in
for uml where that cannot save the processor's registers. The root is a folder that debootstrap makes once, in BUILD_FOLDER/vm.

Usage: vm_test.py BUILD_FOLDER INSIDE.PY uml|qemu [Inside.test_NAME ...]
"""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import time

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, TESTS)
import skips  # noqa: E402

LIMIT_S = 2700  # for all of it: ctest ends it without a word at 3000
BEGIN = time.monotonic()
INSIDE = ("skips.py", "coordinator/daemon/daemon_fixture.py")
PROGRAMS = {"debootstrap": "debootstrap", "mkfs.ext4": "e2fsprogs", "dpkg-shlibdeps": "dpkg-dev"}
PROGRAM_OF = {"uml": ("linux.uml", "user-mode-linux"), "qemu": ("qemu-system-x86_64", "qemu-system-x86")}
PATIENCE = {"uml": 1, "qemu": 5}
# What QEMU says when /dev/kvm could not go on, as that of a machine in a machine at times.
GIVEN_UP = "KVM internal error"
CONSOLE = {"uml": "/dev/tty0", "qemu": "/dev/ttyS0"}
# What its image needs to come up without modules is in it: NVMe, ext4, the serial line.
KERNEL = "linux-image-cloud-amd64"
UNIT = """[Unit]
After=triremed.service trireme-agent.service
[Service]
Type=oneshot
StandardOutput=tty
StandardError=tty
TTYPath={console}
Environment=PATIENCE={patience}
ExecStart=/usr/bin/python3 -B /mnt/tests/vm/inside.py {arguments}
ExecStopPost=/bin/sh -c 'echo "inside: $SERVICE_RESULT $EXIT_STATUS"; systemctl --no-block poweroff'
[Install]
WantedBy=multi-user.target
"""
WORKER = """#!/bin/sh
. /srv/before_a_rank
exec /usr/bin/trireme-worker "$@"
"""


def left_s():
    return max(1, LIMIT_S - (time.monotonic() - BEGIN))


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, timeout=left_s(), stdin=subprocess.DEVNULL, **options)


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


def sources():
    """[(address, suite)] of Debian's packages, as this machine has them."""
    told = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages", "Origin: Debian",
               capture_output=True).stdout.split("\n")
    return sorted({tuple(line.split()[:2]) for line in told if line.endswith(" main")}, key=lambda pair: len(pair[1]))


def chroot(root, script):
    run("chroot", root, "env", "DEBIAN_FRONTEND=noninteractive", "sh", "-euc", script, stdout=subprocess.DEVNULL)


def make_kernel(folder, root):
    """Debian's kernel without its modules, of the version that the root's Debian has."""
    if not glob.glob(f"{folder}/kernel/boot/vmlinuz-*"):
        chroot(root, "mkdir -p /srv/kernel; cd /srv/kernel; chmod 777 .; rm -f *.deb; "
                     f"apt-get -q download $(apt-cache depends {KERNEL} | sed -n 's/.* Depends: //p')")
        [package] = glob.glob(f"{root}/srv/kernel/*.deb")
        run("dpkg-deb", "-x", package, f"{folder}/kernel")
        shutil.rmtree(f"{root}/srv/kernel")
    [kernel] = glob.glob(f"{folder}/kernel/boot/vmlinuz-*")
    return kernel


def make_root(root, packages, inside, kernel, arguments):
    if not os.path.exists(f"{root}/made"):
        shutil.rmtree(root, ignore_errors=True)
        address, suite = sources()[0]
        run("debootstrap", "--variant=minbase", "--include=systemd-sysv,python3", suite, root, address, stdout=subprocess.DEVNULL)
        write(f"{root}/etc/apt/sources.list", "".join(f"deb {address} {suite} main\n" for address, suite in sources()))
        write(f"{root}/made", "")
    shutil.copy("/etc/resolv.conf", f"{root}/etc/resolv.conf")
    shutil.rmtree(f"{root}/mnt")
    shutil.copytree(packages, f"{root}/mnt/packages")
    chroot(root, "apt-get -q update; apt-get -y -q install --no-install-recommends --reinstall /mnt/packages/*.deb; apt-get clean")
    for name in (*INSIDE, os.path.relpath(inside, TESTS)):
        os.makedirs(os.path.dirname(f"{root}/mnt/tests/{name}"), exist_ok=True)
        shutil.copy(f"{TESTS}/{name}", f"{root}/mnt/tests/{name}")
    write(f"{root}/usr/local/bin/worker", WORKER, 0o755)
    write(f"{root}/srv/before_a_rank", "")
    shutil.copy(f"{root}/usr/share/trireme/config/agent.toml", f"{root}/etc/trireme/agent.toml")
    with open(f"{root}/etc/trireme/agent.toml", "a", encoding="utf-8") as file:
        file.write('worker = "/usr/local/bin/worker"\n')
    write(f"{root}/etc/hostname", "vm\n")
    write(f"{root}/etc/hosts", "127.0.0.1 localhost vm\n")
    write(f"{root}/etc/systemd/system/inside.service", UNIT.format(console=CONSOLE[kernel], patience=PATIENCE[kernel], arguments=" ".join(arguments)))
    chroot(root, "systemctl enable triremed trireme-agent inside")


def accelerators():
    """For one boot after the other, until one is not given up; each in the order in which QEMU tries them."""
    software = ["-accel", "tcg,thread=multi"]
    try:
        os.close(os.open("/dev/kvm", os.O_RDWR))
    except OSError:
        return [software]
    return [["-accel", "kvm", *software], software]


def command_of(kernel, folder, image, accelerator):
    if kernel == "uml":
        return ["linux.uml", "mem=3G", f"ubd0={image}", "root=/dev/ubda", "rw", "quiet", "con=none", "con0=null,fd:1",
                f"uml_dir={folder}/"]
    return ["qemu-system-x86_64", *accelerator, "-cpu", "max,arch-capabilities=off", "-smp", "2", "-m", "3G", "-nographic", "-no-reboot",
            "-nic", "none", "-drive", f"file={image},format=raw,if=none,id=disk,cache=unsafe", "-device", "nvme,serial=1,drive=disk",
            "-kernel", make_kernel(folder, f"{folder}/root"),
            "-append", "no_timer_check root=/dev/nvme0n1 rootwait rw quiet panic=-1 console=ttyS0 systemd.getty_auto=no"]


def boot(command, folder):
    """What it has said until it was off."""
    command = ["nice", "-n", "10", *command]
    with open(f"{folder}/console.log", "wb") as log, subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True) as machine:
        try:
            # With its processors stopped for an error of the hardware's it would stay there for good.
            while machine.poll() is None and left_s() > 1 and GIVEN_UP not in read(log.name):
                time.sleep(1)
            if left_s() <= 1:
                print(f"not off within {LIMIT_S} s of the test's begin")
        finally:
            if machine.poll() is None:
                os.killpg(machine.pid, signal.SIGKILL)
    return re.sub(r"\x1b\[[\d;]*m", "", read(log.name).replace("\r", ""))


def read(path):
    with open(path, encoding="utf-8", errors="replace") as log:
        return log.read()


def kernel_for(wanted):
    """Linux 6.1 as a program says "ptrace set fp regs failed" of registers that are more than it has room for, and ends."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        unfit = " amx_tile " in file.read()
    if wanted == "uml" and unfit:
        print("user-mode-linux cannot save the registers of this processor (AMX): QEMU takes its place")
    return "qemu" if unfit else wanted


def main(build, inside, kernel, *arguments):
    if os.geteuid() != 0:
        skips.leave("needs root: it makes a Debian in a folder")
    kernel = kernel_for(kernel)
    missing = sorted(package for program, package in (*PROGRAMS.items(), PROGRAM_OF[kernel]) if shutil.which(program) is None)
    if missing:
        skips.leave(skips.NOT_INSTALLED + " ".join(missing))
    folder = os.path.abspath(f"{build}/vm")
    packages = f"{folder}/packages"
    shutil.rmtree(packages, ignore_errors=True)
    run("cpack", "--config", f"{build}/CPackConfig.cmake", "-B", packages, stdout=subprocess.DEVNULL)
    shutil.rmtree(f"{packages}/_CPack_Packages", ignore_errors=True)
    for path in glob.glob(f"{packages}/libtrireme*"):
        os.remove(path)
    make_root(f"{folder}/root", packages, inside, kernel, arguments)
    image = f"{folder}/root.img"
    for accelerator in accelerators():
        run("mkfs.ext4", "-q", "-F", "-d", f"{folder}/root", image, "4G")
        try:
            said = boot(command_of(kernel, folder, image, accelerator), folder)
        finally:
            os.remove(image)
        print(said)
        if GIVEN_UP not in said:
            break
    sys.exit(0 if re.search(r"^inside: success 0$", said, re.M) else 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
