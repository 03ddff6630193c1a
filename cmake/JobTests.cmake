# Tests of whole programs from outside, in Python: jobs, the daemon and its agents, the dashboard, clusters, what is shipped.
set(trireme_bin "${PROJECT_BINARY_DIR}/bin")

# What `trireme` says of itself, in the shells and by man; docs/cli.md is current.
trireme_python_tests(cli. coordinator/cli/manual_test.py Manual SECONDS 120 LABELS coordinator
  ARGS "${trireme_bin}/trireme" "${PROJECT_SOURCE_DIR}/docs/cli.md"
  METHODS doc exit_codes man_pages bash zsh fish)

# Whole jobs.
trireme_python_tests(worker. worker/worker_test.py Worker SECONDS 300 LABELS mpi CORES 2 ARGS "${trireme_bin}"
  METHODS runs_to_the_end speaks_json runs_a_given_plan continues_after_interrupt events_for_tensorboard traces_chosen_steps
          goes_on_with_compression refuses_changed_text trains_on_with_a_full_disk refuses_bad_input
          refuses_what_does_not_fit
  KILLS names_a_killed_rank trains_on_after_a_killed_rank stops_a_crash_loop ends_with_its_killed_parent ends_a_stopped_rank)

trireme_python_tests(worker. worker/memory_test.py Memory SECONDS 300 LABELS mpi CORES 2 ARGS "${trireme_bin}"
  METHODS stays_within_planned_memory stays_within_planned_memory_in_bf16 stays_within_planned_memory_under_zero_3
          stays_within_planned_memory_recomputing stays_within_planned_memory_with_state_on_the_host
          stays_within_planned_memory_with_state_in_a_file)

trireme_python_tests(worker. worker/damage_test.py Damage SECONDS 600 LABELS mpi CORES 2 ARGS "${trireme_bin}"
  METHODS generate_names_an_older_one goes_on_after_damage refused_it_changes_nothing waits_for_a_folder_that_is_held stops_while_a_folder_is_held
  KILLS gets_on_from_behind_damage)

trireme_python_tests(worker. worker/snapshots_test.py Snapshots SECONDS 300 LABELS mpi CORES 2 ARGS "${trireme_bin}"
  METHODS makes_room_of_what_is_left
  KILLS goes_on_in_memory does_what_was_due_at_that_step takes_memory_or_disk_whichever_is_newer)
trireme_python_tests(worker. worker/snapshots_test.py Snapshots SECONDS 1200 LABELS slow CORES 2 ARGS "${trireme_bin}"
  METHODS goes_on_in_memory_50_times)

# Its ranks' disk loses what was written by a preloaded library, with which a sanitizer does not agree.
if(NOT TRIREME_SANITIZE)
  add_library(lose_when_told MODULE "${PROJECT_SOURCE_DIR}/tests/worker/disk/lose_when_told.cc")
  set_target_properties(lose_when_told PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  trireme_python_tests(worker. worker/offload_test.py Offload SECONDS 300 LABELS mpi CORES 2 ARGS "${trireme_bin}"
    METHODS saves_nothing_that_a_disk_lost)
endif()

# A model that does not fit, on ranks held by control groups: as root, and where there is memory for it.
trireme_add_test(worker.small_nodes SECONDS 1200 LABELS slow
  COMMAND bash "${PROJECT_SOURCE_DIR}/tests/worker/small_nodes.sh" "${trireme_bin}" small)
trireme_add_test(worker.small_nodes_350m SECONDS 6000 LABELS slow
  COMMAND bash "${PROJECT_SOURCE_DIR}/tests/worker/small_nodes.sh" "${trireme_bin}" 350m)

# triremed, its agent and its command line.
trireme_python_tests(daemon. coordinator/daemon/daemon_test.py Daemon SECONDS 300 LABELS coordinator ARGS "${trireme_bin}"
  METHODS runs_a_job ranks_dial_their_keeper pauses_and_resumes cancels readers_outlive_it fails_for_good refuses_strangers
          reads_tokens_again refuses_a_second_daemon retries_a_full_jobs_folder
  KILLS survives_kill_9 agent_killed agent_outlives_daemon worker_killed worker_killed_unseen worker_stopped)

# Jobs that go on in memory.
trireme_python_tests(daemon. coordinator/daemon/memory_steps_test.py MemorySteps SECONDS 300 LABELS coordinator CORES 2 ARGS "${trireme_bin}"
  KILLS kills_in_a_row leaves_a_step_that_fails)
# What runs have left in a node's memory, under an agent alone.
trireme_python_tests(agent. coordinator/agent/snapshots_test.py LeftSnapshots SECONDS 200 LABELS coordinator ARGS "${trireme_bin}"
  METHODS go_after_the_hours_told)

# A daemon with another store, or an older state of it.
trireme_python_tests(daemon. coordinator/daemon/store_test.py Stores SECONDS 600 LABELS coordinator ARGS "${trireme_bin}"
  METHODS nothing_runs_so_nothing_is_asked run_folder_of_another_job folders_with_large_numbers
  KILLS empty_store_ends_nothing backup_put_back_under_a_job backup_put_back_after_the_end adoption_after_a_restart)
trireme_python_tests(daemon. coordinator/daemon/store_test.py SharedJobs SECONDS 300 LABELS coordinator ARGS "${trireme_bin}"
  METHODS two_daemons_share_a_folder)
trireme_python_tests(daemon. coordinator/daemon/store_test.py Names SECONDS 300 LABELS coordinator ARGS "${trireme_bin}"
  KILLS name_is_held_by_a_lease)

# Its store kept while it runs, and put back.
trireme_python_tests(daemon. coordinator/daemon/backup_test.py Backups SECONDS 300 LABELS coordinator ARGS "${trireme_bin}"
  KILLS backup_while_it_runs)

# Several people, each as himself.
trireme_python_tests(daemon. coordinator/daemon/tenants_test.py Tenants SECONDS 300 LABELS coordinator ARGS "${trireme_bin}"
  METHODS socket_group token_taken_back)

# The API by the stubs for Python, which need the system's python3: it has Debian's gRPC.
find_program(TRIREME_SYSTEM_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
if(NOT TRIREME_SYSTEM_PYTHON)
  set(TRIREME_SYSTEM_PYTHON "${Python3_EXECUTABLE}")
endif()
set(trireme_api SECONDS 300 PYTHON "${TRIREME_SYSTEM_PYTHON}" ARGS "${trireme_bin}")
trireme_python_tests(python. coordinator/daemon/python_client_test.py PythonClient ${trireme_api} LABELS coordinator
  METHODS example every_call logs_of_what_is_to_come)
trireme_python_tests(hostile. coordinator/daemon/hostile_test.py Hostile ${trireme_api} LABELS coordinator
  METHODS fuzzed_messages oversized_messages strangers_and_jobs_of_others paths_that_lead_elsewhere links_swapped_later
          words_for_a_shell yaml_bombs readers_that_never_read slow_connections)
trireme_python_tests(soak. coordinator/daemon/soak_test.py Soak ${trireme_api} LABELS coordinator KILLS kill_9_at_10_moments
  kill_9_and_restores_at_10_moments)
trireme_python_tests(soak. coordinator/daemon/soak_test.py Soak SECONDS 3000 PYTHON "${TRIREME_SYSTEM_PYTHON}"
  ARGS "${trireme_bin}" LABELS slow METHODS kill_9_and_restores_at_200_moments)

# What a daemon shows of itself over HTTP and in its log.
trireme_python_tests(observed. coordinator/daemon/observed_test.py Observed SECONDS 300 LABELS coordinator
  ARGS "${trireme_bin}" METHODS health watchdog agent_log_is_bounded run_folders_go_by_age rank_logs_are_bounded damage_ends_a_daemon metrics
  alerts_and_board promtool json_log)

# Who stands still, and who is only slow. Its ranks hang by a preloaded library; a sanitizer wants to be the first library
# itself, so its programs do without.
add_library(hang_when_told MODULE "${PROJECT_SOURCE_DIR}/tests/coordinator/daemon/hang/hang_when_told.cc")
set_target_properties(hang_when_told PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
set(steady)
if(NOT TRIREME_SANITIZE)
  set(steady METHODS hung_rank)
endif()
trireme_python_tests(daemon. coordinator/daemon/stall_test.py Stalls SECONDS 300 LABELS coordinator ARGS "${trireme_bin}"
  ${steady} KILLS lost_agent stopped_daemon)
trireme_python_tests(daemon. coordinator/daemon/groups_test.py Groups SECONDS 300 LABELS coordinator ARGS "${trireme_bin}"
  KILLS hidden_in_a_group hidden_without_groups)
# It waits for one deadline after another, longer than any other test: ctest begins with it.
if(TEST daemon.hung_rank)
  set_tests_properties(daemon.hung_rank PROPERTIES COST 60)
endif()
trireme_add_test(daemon.no_false_alarm SECONDS 3000 LABELS slow
  COMMAND "${Python3_EXECUTABLE}" -B "${PROJECT_SOURCE_DIR}/tests/coordinator/daemon/no_false_alarm.py" "${trireme_bin}" 30)

# The dashboard in a headless Chromium.
trireme_python_tests(dashboard. coordinator/daemon/dashboard_test.py Dashboard SECONDS 600 LABELS coordinator
  ARGS "${trireme_bin}"
  METHODS clicks_through makes_sentences_of_messages lets_in_whom_it_knows shows_who_stands_still
          shows_a_node_that_does_not_come_back says_where_it_is_not)
set_tests_properties(dashboard.clicks_through PROPERTIES COST 30)

# The ready-made files, and the Debian packages (label cluster: it installs them in a namespace).
if(NOT TRIREME_SANITIZE)
  trireme_python_tests(deploy. deploy/deploy_test.py Deploy SECONDS 300 LABELS coordinator ARGS "${trireme_bin}"
    METHODS container kubernetes module config units agent_unit_gives_its_controllers_back)
  trireme_add_test(deploy.packages SECONDS 600 LABELS cluster coordinator
    COMMAND "${Python3_EXECUTABLE}" -B "${PROJECT_SOURCE_DIR}/tests/deploy/packages_test.py" "${PROJECT_BINARY_DIR}")
endif()

# The packages under systemd with a kernel of their own, which is a program; what needs several CPUs on those that QEMU imitates,
# which is slow. Root, and deploy/install_packages vm. They share a root.
if(NOT TRIREME_SANITIZE)
  set(vm_test "${Python3_EXECUTABLE}" -B "${PROJECT_SOURCE_DIR}/tests/vm/vm_test.py" "${PROJECT_BINARY_DIR}"
      "${PROJECT_SOURCE_DIR}/tests/vm/inside.py")
  trireme_add_test(vm.control_groups SECONDS 3000 LABELS vm COMMAND ${vm_test} uml)
  trireme_add_test(vm.cpus SECONDS 3000 LABELS vm COMMAND ${vm_test} qemu Inside.test_boots Inside.test_cpus)
  set_tests_properties(vm.control_groups vm.cpus PROPERTIES RESOURCE_LOCK vm)
endif()

# srun and sbatch on a real Slurm of its own; a daemon and agents on several hosts without one; the daemon over a Slurm, one
# cluster for all of its tests. They need root and namespaces (deploy/install_packages cluster).
trireme_python_tests(cluster.slurm_ cluster/slurm_test.py SlurmJobs SECONDS 300 LABELS cluster coordinator
  ARGS "${trireme_bin}"
  METHODS trains_as_under_mpirun runs_inside_an_allocation ends_the_step_of_a_killed_srun goes_on_after_signals
          queues_what_is_stopped_early goes_on_after_a_dead_node ends_when_a_fault_returns stops_before_its_time_limit
          does_not_queue_again ends_with_a_killed_rank)
trireme_python_tests(cluster.nodes_ cluster/nodes_test.py Nodes SECONDS 600 LABELS cluster coordinator ARGS "${trireme_bin}"
  METHODS trains_on_all_of_them goes_on_without_a_node_that_is_gone goes_on_when_a_cut_cable_is_mended
          goes_on_elsewhere_without_a_human a_daemon_away_ends_nothing)
trireme_python_tests(cluster.groups_ cluster/remote_groups_test.py RemoteGroups SECONDS 300 LABELS cluster coordinator
  ARGS "${trireme_bin}" METHODS hidden_on_another_node)
trireme_python_tests(cluster.groups_ cluster/remote_groups_test.py NoRemoteGroups SECONDS 300 LABELS cluster coordinator
  ARGS "${trireme_bin}" METHODS launches_without_remote_groups)
trireme_python_tests(cluster.partitions_ cluster/partitions_test.py Partitions SECONDS 1200 LABELS cluster coordinator
  ARGS "${trireme_bin}" METHODS five_of_one_node five_of_two_nodes)
trireme_python_tests(cluster.twins_ cluster/partitions_test.py Twins SECONDS 1200 LABELS cluster coordinator
  ARGS "${trireme_bin}" METHODS a_dozen_partitions)
trireme_python_tests(cluster.nodes_ cluster/nodes_test.py Nodes SECONDS 1800 LABELS cluster coordinator slow
  ARGS "${trireme_bin}" METHODS a_daemon_away_for_ten_minutes)
trireme_add_test(cluster.slurm_daemon SECONDS 900 LABELS cluster coordinator
  COMMAND "${Python3_EXECUTABLE}" -B "${PROJECT_SOURCE_DIR}/tests/cluster/slurm_daemon_test.py" "${trireme_bin}")
