"""What the project promises, and the tests that hold it.

`PROMISES` has, page by page and section by section, each row of the tables and each bullet, by the
words with which it begins (its first cell; with the second after a colon where rows share the
first), and what a page guarantees in prose. `LIFE` has an actor's life from end to end: a few tests
of each package, on real processes. `tests/api/test_what_is_promised.py` finds what has no entry,
and entries for what is gone.

Of the tests that need processes, `pytest` without `--all` runs what users are promised: those of
`PAGES_OF_A_PLAIN_RUN` and `LIFE`. README's command takes minutes only as long as they take a second
or less, and wait for conditions rather than for time. The tests that hold the other pages, of the
inside and of figures, run with the rest. A promise may have more tests than those that stand here.
"""
# ruff: noqa: E501 - an id is as long as it is, and is found by searching for it

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TypeAlias

Held: TypeAlias = tuple[str, ...] | str
"""Tests as pytest names them: a file, a function of it, or one of its ids with parameters. A text
says why there is none.
"""

PROMISES: Mapping[str, Mapping[str, Mapping[str, Held]]] = {
    "README.md": {
        "pymonarch": {
            "**Pure Python, and fast.**": (
                "tests/procs/test_slow_path.py::test_one_more_proc_runs_few_functions_and_touches_few_pages",
                "tests/procs/test_tensors.py::test_a_program_that_sends_no_tensor_does_not_import_torch",
            ),
            "**Nothing waits on a dead thing.**": (
                "tests/faults/test_detection.py::test_a_caller_is_told_of_the_death_of_a_proc_at_once",
                "tests/procs/test_supervision_basics.py::test_a_caller_that_waits_on_an_actor_that_fails_is_told",
            ),
            "**It reads.**": ("tests/api/test_layering.py",),
        },
        "The smallest program": {
            "Eight processes, one `Trainer` in each": (
                "tests/procs/test_smallest_program.py::test_the_smallest_program_prints_nothing_exits_with_0_and_leaves_no_process",
                "tests/procs/test_smallest_program.py::test_the_same_program_with_await",
            ),
        },
        "Several hosts": {
            "Links are encrypted and survive short interruptions.": (
                "tests/faults/test_links.py::test_nothing_is_lost_or_doubled_by_a_network_that_cuts_stalls_and_splits",
                "tests/faults/test_trust.py::test_metatls_is_never_in_the_clear",
            ),
        },
        "What there is": {
            "survive failures": (
                "tests/procs/test_supervision_basics.py::test_a_death_of_a_process_is_told_at_once_to_callers_and_to_the_hook",
                "tests/procs/test_supervision_basics.py::test_the_owner_of_a_failed_actor_hears_of_it_once_and_lives_on_if_it_handles_it",
                "tests/faults/test_restarts.py::test_one_for_one_replaces_a_killed_process_and_leaves_the_others_alone",
            ),
            "get hosts: workers": (
                "tests/procs/test_jobs.py::test_each_host_of_a_process_job_runs_actors_in_processes_of_its_own",
            ),
            "get hosts: of this machine": (
                "tests/procs/test_jobs.py::test_a_file_names_worker_processes_that_end_with_the_program",
                "tests/procs/test_skypilot_job.py::test_without_skypilot_the_error_says_what_to_install",
            ),
            "train with torch": (
                "tests/procs/test_run.py::test_a_script_sees_what_torchrun_shows_it",
            ),
            "go on when ranks die": (
                "tests/faults/test_elastic.py::test_killed_ranks_are_replaced_and_the_loss_is_that_of_the_undisturbed_run",
            ),
            "compute with tensors: torch": (
                "tests/procs/test_tensor_basics.py::test_an_operation_runs_on_every_rank",
                "tests/procs/test_tensor_training.py::test_data_parallel_training_is_that_of_the_whole_batch",
                "tests/procs/test_tensor_training.py::test_a_graph_over_two_meshes_is_derived_piece_by_piece",
            ),
            "compute with tensors: a simulator": (
                "tests/procs/test_simulator_real.py::test_procs_made_meanwhile_patch_what_their_actors_spawn",
            ),
            "move much data": (
                "tests/procs/test_rdma_buffers.py::test_a_busy_owner_does_not_matter",
                "tests/procs/test_rdma_buffers.py::TestMemoryOfAnotherDevice::test_it_is_read_and_written_from_elsewhere",
                "tests/procs/test_rdma_state.py::test_a_whole_state_is_pulled",
            ),
            "serve": (
                "tests/procs/test_service.py::test_a_call_goes_to_one_replica_and_gives_its_value",
                "tests/procs/test_service.py::test_calls_wait_for_whichever_replica_is_done_first",
                "tests/procs/test_service.py::test_items_are_handled_in_batches",
                "tests/faults/test_service_faults.py::test_a_replica_that_dies_is_replaced_under_the_same_handle",
            ),
            "feed": (
                "tests/procs/test_queues.py::test_each_item_of_many_producers_is_taken_once_in_the_order_of_its_producer",
                "tests/procs/test_data_feed.py::test_each_rank_gets_its_batches_in_order_to_the_end",
            ),
            "bring code and files": (
                "tests/procs/test_sync.py::test_new_procs_run_the_code_as_it_is_now",
            ),
            "see why it hangs": (
                "tests/faults/test_why.py::test_the_command_says_what_holds_up_the_program_and_since_when",
                "tests/procs/test_debugger.py::test_a_breakpoint_stops_one_rank_and_the_others_answer",
            ),
            "watch it": (
                "tests/procs/test_admin.py::test_the_tree_is_walked_by_references",
                "tests/procs/test_update_class.py::test_actors_take_the_new_code_and_keep_their_state",
            ),
            "ask it": (
                "tests/procs/test_output.py::test_lines_of_several_procs_arrive_whole_with_mesh_and_rank_in_front",
                "tests/procs/test_logs_view.py::test_equal_lines_are_shown_once_when_the_window_ends",
                "tests/procs/test_telemetry_metrics.py::test_metrics_of_all_ranks_are_rows_with_their_units_and_attributes",
                "tests/procs/test_telemetry_query.py::test_a_program_asks_itself",
            ),
            "test it": (
                "tests/pure/test_testing_simulation.py::test_a_short_cut_of_the_network_loses_nothing",
            ),
        },
    },
    "docs/benchmarks.md": {
        "Benchmarks": {
            "call_one().get(), sync endpoint, other proc, p50": (
                "tests/procs/test_slow_path.py::test_one_call_and_its_reply_take_one_send_and_one_receive_on_either_side",
            ),
            "call_one().get(), async endpoint, other proc, p50": (
                "tests/procs/test_slow_path.py::test_one_call_and_its_reply_take_one_send_and_one_receive_on_either_side",
            ),
            "await call_one() between two actors, p50": (
                "tests/procs/test_async_actors.py::test_an_async_actor_awaits_calls_to_others",
            ),
            "4,000 calls in flight to one actor": (
                "tests/procs/test_slow_path.py::test_each_of_many_calls_in_flight_costs_no_more_than_one_that_is_waited_for",
            ),
            "one-way broadcasts to one actor": (
                "tests/procs/test_slow_path.py::test_telemetry_runs_no_function_for_a_message_that_it_does_not_look_at",
            ),
            "call() over 8 procs, p50": (
                "tests/procs/test_slow_path.py::test_a_call_to_eight_procs_is_pickled_once_and_sent_once_to_each",
                "tests/procs/test_slow_path.py::test_the_io_threads_sleep_through_a_loop_of_calls",
            ),
            "first call after import, 1 proc": (
                "tests/procs/test_import_order.py::test_the_processes_that_only_serve_import_no_more_than_they_need",
                "tests/procs/test_slow_path.py::test_one_more_proc_runs_few_functions_and_touches_few_pages",
            ),
            "64 procs spawned and called once": (
                "tests/procs/test_slow_path.py::test_one_more_proc_runs_few_functions_and_touches_few_pages",
            ),
            "private memory per idle proc": (
                "tests/procs/test_slow_path.py::test_one_more_proc_runs_few_functions_and_touches_few_pages",
            ),
            "1 MiB there and back, p50": (
                "tests/procs/test_slow_path.py::test_a_large_buffer_is_written_once_and_never_crosses_the_socket",
            ),
            "16 MiB there and back, p50": (
                "tests/procs/test_slow_path.py::test_a_large_buffer_is_written_once_and_never_crosses_the_socket",
            ),
            "128 MiB there and back, p50": (
                "tests/procs/test_slow_path.py::test_a_large_buffer_is_written_once_and_never_crosses_the_socket",
                "tests/faults/test_payloads.py::test_an_actor_without_anything_to_do_keeps_nothing_of_what_it_was_sent",
            ),
            "100 x 100 KiB there and back, p50": (
                "tests/faults/test_payloads.py::test_many_medium_buffers_share_a_segment_and_each_is_writable",
            ),
            "1 MiB cast to 8 procs, p50": (
                "tests/procs/test_slow_path.py::test_a_call_to_eight_procs_is_pickled_once_and_sent_once_to_each",
            ),
            "16 MiB cast to 8 procs, p50": (
                "tests/procs/test_slow_path.py::test_a_large_buffer_for_eight_procs_is_written_once",
            ),
            "128 MiB cast to 8 procs, p50": (
                "tests/procs/test_slow_path.py::test_a_large_buffer_for_eight_procs_is_written_once",
            ),
            "1 proc spawned and called once": (
                "tests/procs/test_slow_path.py::test_one_more_proc_runs_few_functions_and_touches_few_pages",
            ),
            "8 procs spawned and called once": (
                "tests/procs/test_slow_path.py::test_one_more_proc_runs_few_functions_and_touches_few_pages",
            ),
            "200 procs spawned and called once": (
                "tests/procs/test_slow_path.py::test_one_more_proc_runs_few_functions_and_touches_few_pages",
            ),
            "8 procs that use torch, called once": (
                "tests/procs/test_preload.py::test_procs_of_a_client_that_has_imported_torch_start_with_it",
            ),
            "64 procs that use torch, called once": (
                "tests/procs/test_preload.py::test_a_module_of_the_user_runs_once_for_all_procs",
            ),
            "one-way messages of 8 procs to one actor": (
                "tests/procs/test_slow_path.py::test_a_broadcast_costs_one_send_per_rank_and_no_reply",
                "tests/procs/test_ordering.py::test_each_of_many_senders_is_handled_in_its_own_order",
            ),
            "one-way broadcasts to 8 procs, messages": (
                "tests/procs/test_slow_path.py::test_a_broadcast_costs_one_send_per_rank_and_no_reply",
            ),
        },
    },
    "docs/failures.md": {
        "Failures": {
            "`TypeError` or `ValueError` at a call": (
                "tests/procs/test_calls.py::test_wrong_arguments_raise_type_error_in_every_adverb_and_nothing_is_sent",
            ),
            "`ActorError[ValueError]`": (
                "tests/procs/test_calls.py::test_an_exception_reaches_the_caller_as_actor_error_and_the_actor_serves_on",
                "tests/procs/test_errors.py::test_the_type_survives_actors_that_let_the_error_pass",
            ),
            "`SupervisionError: ... has failed`": (
                "tests/faults/test_exit_faults.py::test_a_report_says_how_a_process_ended_and_what_it_printed_last",
            ),
            "`SupervisionError: ... has status: stopped`": (
                "tests/procs/test_lifecycle.py::test_calling_a_stopped_mesh_raises_and_harms_no_other",
                "tests/procs/test_lifecycle.py::test_calling_actors_of_stopped_procs_raises_and_harms_no_other",
            ),
            "`SupervisionError: ... was stopped by a signal, and ended`": (
                "tests/faults/test_frozen.py::test_a_proc_that_stays_stopped_is_ended_and_every_kind_of_caller_is_told",
            ),
            "`Unhandled monarch error on the root actor`": (
                "tests/procs/test_new_user.py::test_a_fault_at_the_very_end_of_the_script_is_not_lost",
            ),
            "`DeadlockError`": (
                "tests/faults/test_deadlocks.py::test_the_client_sees_who_waits_for_whom",
            ),
            "`BackpressureError`": (
                "tests/faults/test_bounds.py::test_who_sends_to_a_port_that_is_never_read_is_told_after_the_delivery_timeout",
            ),
            "`TimeoutError`": (
                "tests/procs/test_futures.py::test_a_timed_out_get_leaves_the_call_running_and_a_later_get_returns_its_value",
            ),
            "`ElasticError`": (
                "tests/faults/test_elastic.py::test_a_group_that_keeps_dying_gives_up_and_says_why",
            ),
            "`UnreadErrorWarning`": (
                "tests/faults/test_unread_errors.py::test_an_error_that_is_not_read_is_warned_of_once_when_its_future_goes",
            ),
            "`restarting trainers[0, 1] (1 of 3 within 60s)`": (
                "tests/faults/test_restarts.py::test_one_death_too_many_is_a_fault_that_says_how_often_it_was_tried",
            ),
            "nothing, it hangs": (
                "tests/faults/test_why.py::test_the_command_says_what_holds_up_the_program_and_since_when",
            ),
        },
        "Who hears of it": {
            "**Errors of calls.**": (
                "tests/procs/test_supervision_basics.py::test_an_actor_error_of_a_call_is_no_fault",
            ),
            "**Supervision.**": (
                "tests/procs/test_supervision_basics.py::test_a_caller_that_waits_on_an_actor_that_fails_is_told",
                "tests/procs/test_supervision_basics.py::test_a_holder_of_a_reference_is_not_its_supervisor",
            ),
            "every **caller** that waits for it": (
                "tests/procs/test_supervision_basics.py::test_a_caller_that_waits_on_an_actor_that_fails_is_told",
            ),
            "the **owner**, which made the mesh": (
                "tests/procs/test_supervision_basics.py::test_the_owner_of_a_failed_actor_hears_of_it_once_and_lives_on_if_it_handles_it",
            ),
            "`__supervise__` returns true": (
                "tests/procs/test_supervision_basics.py::test_the_owner_of_a_failed_actor_hears_of_it_once_and_lives_on_if_it_handles_it",
            ),
            "It returns false, is not defined, or raises": (
                "tests/procs/test_supervision_basics.py::test_an_owner_that_does_not_handle_a_failure_fails_itself_and_names_the_child",
                "tests/procs/test_supervision_basics.py::test_an_owner_whose_supervise_raises_fails_with_both_errors",
            ),
            "The client is the root.": (
                "tests/procs/test_supervision_basics.py::test_an_error_in_a_broadcast_ends_the_actor_and_calls_the_clients_hook_once",
                "tests/procs/test_engine_log.py::test_the_last_reports_are_kept",
            ),
            "It is called once for each failed rank.": (
                "tests/procs/test_supervision_basics.py::test_the_hook_is_called_once_for_each_failed_rank",
                "tests/faults/test_told_once.py::test_the_death_of_the_host_agent_is_heard_for_every_proc_talked_to_or_not",
            ),
            "In a sync actor it runs between messages": (
                "tests/procs/test_supervision_basics.py::test_an_async_owner_supervises_while_one_of_its_endpoints_waits",
            ),
            "It may call actors, stop meshes and spawn new ones.": (
                "tests/faults/test_restarts.py::test_an_actor_may_own_what_restarts_and_handle_what_no_longer_does",
            ),
            "It is not called for a mesh that the owner has stopped meanwhile": (
                "tests/faults/test_ending.py::test_an_endpoint_that_starts_over_with_new_procs_handled_the_failure",
            ),
            "`mesh_name`": (
                "tests/faults/test_known_pains.py::test_a_failure_tells_which_rank_of_which_mesh_an_exception_ended",
            ),
            "`mesh`": (
                "tests/faults/test_known_pains.py::test_a_failure_tells_which_rank_of_which_mesh_an_exception_ended",
            ),
            "`ranks`": (
                "tests/faults/test_known_pains.py::test_a_failure_tells_which_rank_of_which_mesh_an_exception_ended",
            ),
            "`cause`": (
                "tests/faults/test_known_pains.py::test_a_failure_tells_how_a_process_ended_and_what_it_printed_last",
                "tests/procs/test_supervision_basics.py::test_abort_and_kill_end_an_actor_with_a_failure_that_gives_the_reason",
            ),
            "`exception`": (
                "tests/faults/test_known_pains.py::test_a_failure_tells_which_rank_of_which_mesh_an_exception_ended",
            ),
            "`exit_code`, `signal`": (
                "tests/faults/test_known_pains.py::test_a_failure_tells_how_a_process_ended_and_what_it_printed_last",
            ),
            "`last_output`": (
                "tests/faults/test_known_pains.py::test_a_failure_tells_how_a_process_ended_and_what_it_printed_last",
            ),
            "`report()`": (
                "tests/faults/test_exit_faults.py::test_a_report_says_how_a_process_ended_and_what_it_printed_last",
            ),
            "`event`": (
                "tests/faults/test_known_pains.py::test_failures_can_be_pickled_sent_through_ports_and_returned",
            ),
        },
        "Behaviour matrix": {
            "endpoint raises an `Exception`: `call`, `call_one`, `choose`, `stream`": (
                "tests/faults/test_failure_matrix.py::test_what_follows_from",
            ),
            "same, and the future is never read": (
                "tests/faults/test_failure_matrix.py::test_what_follows_from",
            ),
            "endpoint raises in a `broadcast`": (
                "tests/faults/test_failure_matrix.py::test_what_follows_from",
            ),
            "endpoint with an explicit response port raises": (
                "tests/faults/test_failure_matrix.py::test_what_follows_from",
                "tests/procs/test_ports.py::test_an_explicit_port_endpoint_that_raises_fails_the_actor",
            ),
            "`sys.exit()`, or another `BaseException`, in any endpoint": (
                "tests/faults/test_failure_matrix.py::test_what_follows_from",
                "tests/procs/test_calls.py::test_system_exit_in_an_endpoint_ends_the_actor_and_not_the_process",
            ),
            "`asyncio.CancelledError` escapes an async endpoint": (
                "tests/faults/test_failure_matrix.py::test_what_follows_from",
                "tests/procs/test_async_actors.py::test_an_escaping_cancelled_error_is_an_error_of_the_call_and_the_actor_serves_on",
            ),
            "exception in a task that the program started": (
                "tests/faults/test_failure_matrix.py::test_what_follows_from",
                "tests/faults/test_known_pains.py::test_the_error_of_a_task_that_is_not_awaited_is_printed",
            ),
            "`__init__` raises": (
                "tests/faults/test_failure_matrix.py::test_what_follows_from_an_actor_that_cannot_be_constructed",
            ),
            "`os._exit`, SIGKILL, segfault, out of memory": (
                "tests/faults/test_failure_matrix.py::test_what_follows_from",
            ),
            "process runs on but listens no more (`os.execv`, `os.closerange`)": (
                "tests/faults/test_deaf.py::test_a_process_that_stops_listening_is_ended_and_its_callers_told",
            ),
            "process stopped (SIGSTOP) for `heartbeat_timeout`": (
                "tests/faults/test_frozen.py::test_a_proc_that_stays_stopped_is_ended_and_every_kind_of_caller_is_told",
            ),
            "host agent gone": (
                "tests/faults/test_told_once.py::test_the_death_of_the_host_agent_is_heard_for_every_proc_talked_to_or_not",
            ),
            "[another host](#other-hosts) lost": (
                "tests/faults/test_lost_hosts.py::test_everybody_who_waits_is_told_and_the_rest_is_of_use[kill]",
            ),
            "actor stops itself, or its owner stops the mesh": (
                "tests/faults/test_failure_matrix.py::test_what_follows_from_a_stop_by_the_owner",
                "tests/procs/test_lifecycle.py::test_an_actor_may_stop_itself_and_the_owner_hears_of_no_failure",
                "tests/procs/test_lifecycle.py::test_the_message_in_progress_of_a_sync_actor_is_finished_before_its_cleanup",
            ),
            "owner of R ends or dies": (
                "tests/faults/test_known_pains.py::test_a_reference_whose_owner_is_gone_says_so_to_everybody_who_calls_it",
            ),
            "result can't be pickled, or is larger than `codec_max_frame_length`": (
                "tests/faults/test_failure_matrix.py::test_what_follows_from",
                "tests/procs/test_errors.py::test_a_message_over_the_limit_fails_at_once_and_the_connection_stays",
            ),
            "argument larger than `codec_max_frame_length`": (
                "tests/procs/test_errors.py::test_a_message_over_the_limit_fails_at_once_and_the_connection_stays",
            ),
            "actors wait in a circle": (
                "tests/faults/test_deadlocks.py::test_actors_that_wait_for_each_other_are_told_so_and_go_on",
            ),
            "A call to a dead rank fails at once.": (
                "tests/faults/test_known_pains.py::test_calling_what_is_dead_raises_and_does_no_harm",
            ),
            "A dead rank stays dead": (
                "tests/procs/test_supervision_basics.py::test_ranks_that_fail_one_after_the_other_are_each_reported",
            ),
            "Spawning on procs of which some are dead works": (
                "tests/faults/test_told_once.py::test_an_owner_hears_of_ranks_spawned_on_processes_known_dead",
            ),
            "`choose` picks a living rank.": (
                "tests/procs/test_supervision_basics.py::test_choose_finds_the_ranks_that_are_alive",
            ),
            "`initialized` of a mesh raises the error that kept it from starting.": (
                "tests/procs/test_bootstrap.py::test_a_command_that_does_not_start_a_proc_is_an_error_and_not_a_wait",
                "tests/procs/test_preload.py::test_a_module_that_is_not_there_is_an_error_of_the_mesh",
            ),
        },
        "How fast a failure is noticed": {
            "process: SIGKILL": (
                "tests/faults/test_detection.py::test_a_caller_is_told_of_the_death_of_a_proc_at_once",
            ),
            "process: SIGSEGV": (
                "tests/faults/test_detection.py::test_a_caller_is_told_of_the_death_of_a_proc_at_once",
            ),
            "process: `os._exit`": (
                "tests/faults/test_detection.py::test_a_caller_is_told_of_the_death_of_a_proc_at_once",
            ),
            "process: SIGSTOP": (
                "tests/faults/test_frozen.py::test_the_owner_of_a_proc_that_stays_stopped_hears_once_what_it_was",
            ),
            "spawner: SIGKILL": (
                "tests/faults/test_detection.py::test_a_caller_is_told_of_the_loss_of_the_host_within_a_second[SIGKILL-spawner]",
            ),
            "spawner: SIGSTOP": (
                "tests/faults/test_frozen.py::test_a_host_whose_own_processes_stay_stopped_is_lost_as_a_whole[spawner]",
            ),
            "host agent: SIGKILL": (
                "tests/faults/test_detection.py::test_a_caller_is_told_of_the_loss_of_the_host_within_a_second[SIGKILL-agent]",
            ),
            "host agent: SIGSTOP": (
                "tests/faults/test_frozen.py::test_a_host_whose_own_processes_stay_stopped_is_lost_as_a_whole[agent]",
            ),
            "The kernel tells of ends.": (
                "tests/procs/test_bootstrap.py::test_a_proc_that_is_killed_while_idle_is_reported",
            ),
            "A process that holds the GIL for an hour": (
                "tests/faults/test_frozen.py::test_holding_the_interpreter_lock_for_long_kills_no_process",
            ),
            "A process that is declared frozen is killed": (
                "tests/faults/test_frozen.py::test_a_proc_that_stays_stopped_is_ended_and_every_kind_of_caller_is_told",
            ),
            "A client that was itself stopped declares no process lost.": (
                "tests/faults/test_frozen.py::test_a_client_that_was_stopped_itself_takes_no_peer_for_dead",
            ),
            "`heartbeat_timeout=0` sets no limit": (
                "tests/faults/test_frozen.py::test_without_a_timeout_a_stopped_process_is_waited_for",
            ),
            "Not noticed: a process frozen by the cgroup freezer": "what is not noticed, and is said so, is no promise",
        },
        "Other hosts": {
            "worker process ended by a signal (job scheduler, `kill`), its spawner killed": (
                "tests/faults/test_lost_hosts.py::test_everybody_who_waits_is_told_and_the_rest_is_of_use[end the worker]",
            ),
            "worker shut down by another client": (
                "tests/faults/test_lost_hosts.py::test_a_host_that_another_client_shuts_down_is_lost_to_this_one",
            ),
            "workers ended by the program itself, as its last act": (
                "tests/faults/test_own_ends.py::test_a_program_that_ends_its_own_workers_last_has_its_own_status",
            ),
            "agent killed": (
                "tests/faults/test_lost_hosts.py::test_everybody_who_waits_is_told_and_the_rest_is_of_use[kill]",
            ),
            "agent frozen, machine or its network gone": (
                "tests/faults/test_lost_hosts.py::test_everybody_who_waits_is_told_and_the_rest_is_of_use[freeze]",
            ),
            "network gone for less than that": (
                "tests/faults/test_links.py::test_nothing_is_lost_or_doubled_by_a_network_that_cuts_stalls_and_splits",
            ),
            "network gone between two hosts only": (
                "tests/faults/test_machines.py::test_hosts_that_lose_each_other_but_not_the_client_stay_of_use_to_it",
            ),
            "client ended, in order or by any signal": (
                "tests/faults/test_lost_clients.py::test_what_a_client_had_ends_with_it_and_another_client_does_not_notice[SIGKILL]",
            ),
            "client's agent killed, frozen or cut off": (
                "tests/faults/test_lost_clients.py::test_what_a_client_had_ends_with_it_and_another_client_does_not_notice[agent SIGKILL]",
            ),
            "owner's host lost": (
                "tests/faults/test_lost_hosts_between.py::test_what_actors_of_the_lost_host_owned_elsewhere_ends[kill]",
            ),
            "a process there killed, or ended otherwise": (
                "tests/faults/test_deaths_between_hosts.py::test_a_write_of_a_process_that_has_ended_is_not_waited_for",
                "tests/faults/test_deaths_between_hosts.py::test_what_a_process_that_has_ended_owned_on_another_host_ends",
            ),
            "The bound for all of it is 5 s": (
                "tests/faults/test_lost_hosts_midway.py::test_stopping_ends_within_the_bound_and_is_no_failure[freeze-procs.stop()]",
            ),
            "A pause of one's own is not the silence of others": (
                "tests/faults/test_links.py::test_a_process_that_was_stopped_for_a_while_blames_no_other",
            ),
            "Procs on the lost host may live on for a moment": (
                "tests/faults/test_lost_clients.py::test_what_a_client_had_ends_with_it_and_another_client_does_not_notice[agent SIGKILL]",
            ),
            "The loss of a host that merely passed on a call": (
                "tests/faults/test_lost_hosts_between.py::test_those_below_a_lost_host_of_a_tree_are_called_and_answer[kill-1]",
            ),
            "A restart strategy does not bring back a host.": (
                "tests/procs/test_scaling.py::test_lost_hosts_are_replaced_on_request_and_told",
            ),
            "`HostMesh.stop()`, `shutdown()`, `ProcMesh.stop()` and `shutdown_context()` do not wait longer": (
                "tests/faults/test_lost_hosts_midway.py::test_stopping_ends_within_the_bound_and_is_no_failure[freeze-procs.stop()]",
            ),
            "A worker that is started again at the same address is another host.": (
                "tests/faults/test_lost_hosts.py::test_a_lost_host_is_back_when_its_worker_is_started_again_and_attached",
            ),
            "Both sides may have a `channel_reconnect_timeout` of their own.": (
                "tests/faults/test_lost_hosts.py::test_hosts_need_not_have_the_same_timeout[client]",
            ),
            "A longer one lengthens these bounds with it": (
                "tests/pure/test_testing_simulation.py::test_a_cut_shorter_than_the_timeout_loses_nothing_however_long_that_is",
                "tests/pure/test_routing_one_root.py::test_a_host_that_is_asked_again_has_longer_where_links_may_be_away_for_longer",
            ),
        },
        "What bounds each wait": {
            "`get()`, `await` of a call in flight": (
                "tests/procs/test_supervision_basics.py::test_a_caller_that_waits_on_an_actor_that_fails_is_told",
                "tests/procs/test_lifecycle.py::test_a_caller_that_waits_when_the_mesh_is_stopped_is_released",
            ),
            "a call to something dead or stopped": (
                "tests/faults/test_known_pains.py::test_calling_what_is_dead_raises_and_does_no_harm",
            ),
            "a call to an actor that is still starting": (
                "tests/procs/test_supervision_basics.py::test_a_failing_constructor_is_reported_without_a_call",
                "tests/procs/test_references.py::test_third_parties_may_call_an_actor_before_its_constructor_has_finished",
            ),
            "a call while R restarts": (
                "tests/faults/test_restarts.py::test_a_call_in_flight_fails_and_one_that_comes_during_the_restart_waits",
                "tests/faults/test_restarts.py::test_a_wait_for_a_restart_that_is_given_up_ends",
            ),
            "a call with `options(timeout=t, retries=n)`": (
                "tests/procs/test_retrying.py::test_a_call_that_runs_out_of_attempts_says_so_and_has_the_answers_so_far",
            ),
            "each future of a `stream`": (
                "tests/procs/test_calls.py::test_each_future_of_a_stream_raises_on_its_own",
            ),
            "a call, the explicit response port of which the called actor has sent on": (
                "tests/faults/test_forgotten_ports.py::test_a_call_whose_port_was_handed_on_ends_with_the_actor_that_was_called",
                "tests/faults/test_forgotten_ports.py::test_a_call_ends_with_the_process_that_alone_has_its_port",
                "tests/faults/test_forgotten_ports.py::test_a_caller_is_told_that_nobody_has_its_port_any_more",
            ),
            "`receiver.recv().get()`": (
                "tests/procs/test_futures_elsewhere.py::test_a_receiver_that_is_tied_to_a_call_raises_when_that_has_failed",
            ),
            "sending to an actor whose mailbox is full": (
                "tests/faults/test_bounds.py::test_a_flood_to_a_busy_actor_waits_when_its_mailbox_holds_its_limit_in_bytes",
                "tests/faults/test_bounds.py::test_who_sends_to_a_port_that_is_never_read_is_told_after_the_delivery_timeout",
            ),
            "`stop()` of an actor mesh": (
                "tests/procs/test_lifecycle.py::test_the_message_in_progress_of_a_sync_actor_is_finished_before_its_cleanup",
            ),
            "an ending actor, for each mesh that it owns": (
                "tests/faults/test_ending.py::test_an_actor_whose_meshes_are_slow_to_stop_cleans_up_all_the_same",
            ),
            "`stop()` of procs": (
                "tests/procs/test_lifecycle.py::test_stopping_busy_procs_ends_them_within_the_grace_time_and_is_no_fault",
            ),
            "`procs.initialized`": (
                "tests/faults/test_stuck_processes.py::test_a_program_that_never_serves_is_killed_and_its_rank_named",
            ),
            "`actors.initialized`": (
                "tests/faults/test_detection.py::test_who_waits_for_procs_to_start_is_told_that_one_of_them_died",
            ),
            "all that waits for another host": (
                "tests/faults/test_lost_hosts.py::test_everybody_who_waits_is_told_and_the_rest_is_of_use[freeze]",
            ),
            "`hosts.initialized`, and calls before": (
                "tests/procs/test_attach.py::test_an_absent_worker_is_a_timely_error_naming_host_and_reason",
                "tests/procs/test_attach.py::test_where_waiting_can_not_help_a_host_is_given_up_at_once",
            ),
            "procs of a client that is gone, on other hosts": (
                "tests/faults/test_lost_clients.py::test_what_a_client_had_ends_with_it_and_another_client_does_not_notice[SIGKILL]",
            ),
            "`spawn` on procs of which some are dead": (
                "tests/faults/test_told_once.py::test_an_owner_hears_of_ranks_spawned_on_processes_known_dead",
            ),
            "`get()` after the owner of what was called has died": (
                "tests/faults/test_known_pains.py::test_a_reference_whose_owner_is_gone_says_so_to_everybody_who_calls_it",
            ),
            "`shutdown_context()`": (
                "tests/faults/test_exit_shutdown.py::test_it_is_bounded_with[a dead agent]",
            ),
            "end of the program": (
                "tests/faults/test_frozen.py::test_a_program_ends_although_its_host_stands_still[agent]",
            ),
            "end of the program after an unhandled fault": (
                "tests/faults/test_exit_functions.py::test_exit_functions_run_and_files_are_written_where_the_main_thread_is_stuck",
            ),
            "a process group of a mesh in the making": (
                "tests/faults/test_torch_groups.py::test_the_others_do_not_wait_for_one_that_dies_as_they_connect",
            ),
            "a call to which a rank answers with an error of the network": (
                "tests/faults/test_torch_groups.py::test_a_rank_that_dies_in_a_collective_is_named_by_the_call",
            ),
            "actors that wait in a circle": (
                "tests/faults/test_deadlocks.py::test_the_default_interval_finds_one_in_seconds",
            ),
        },
        "What bounds memory": {
            "messages to one actor": (
                "tests/faults/test_bounds.py::test_a_flood_to_a_busy_actor_waits_when_its_mailbox_holds_its_limit_in_bytes",
                "tests/faults/test_bounds.py::test_a_full_actor_does_not_block_others_on_its_connection",
                "tests/faults/test_back_pressure.py::test_a_mailbox_limit_pauses_senders_and_resumes_them_and_nothing_is_lost",
            ),
            "calls to an actor that has yet to be spawned there, or starts again": (
                "tests/faults/test_bounds.py::test_a_flood_to_a_process_that_starts_again_waits_until_it_is_back",
            ),
            "values on one port": (
                "tests/faults/test_bounds.py::test_a_port_that_is_not_read_holds_its_senders_and_no_one_else",
            ),
            "what is on its way to one process of this host": (
                "tests/faults/test_back_pressure.py::test_a_producer_faster_than_its_consumer_grows_neither_without_bound",
            ),
            "what is for a process of this host that starts, or starts again": (
                "tests/faults/test_bounds.py::test_a_flood_to_a_process_that_starts_again_waits_until_it_is_back",
            ),
            "what is on its way to one process of another host": (
                "tests/procs/test_many_hosts_messages.py::test_a_producer_on_another_host_grows_no_process_without_bound",
            ),
            "calls that a concurrent endpoint has begun": (
                "tests/procs/test_async_actors.py::test_concurrency_bounds_overlap_in_order_and_blocks_no_other",
            ),
            "answers to a process of this host that does not read": (
                "tests/faults/test_bounds.py::test_answers_to_a_process_that_does_not_read_hold_up_who_answers",
            ),
            "answers to one process of another host": (
                "tests/procs/test_many_hosts_messages.py::test_arrays_of_many_ranks_come_back_at_once_each_its_own",
            ),
            "answers that have come": (
                "tests/procs/test_futures.py::test_a_result_is_freed_with_the_last_reference_to_its_future",
            ),
            "how actors and processes have ended, for those who ask later": (
                "tests/faults/test_bounds.py::test_failures_with_long_messages_are_remembered_in_few_bytes",
            ),
            "unread output": (
                "tests/procs/test_output_order.py::test_output_that_is_not_read_is_bounded_and_what_is_left_out_is_counted",
            ),
            "The receiver says that it is full": (
                "tests/faults/test_bounds.py::test_a_flood_to_a_busy_actor_waits_when_its_mailbox_holds_its_limit_in_bytes",
            ),
            "Supervision and stops never wait for room": (
                "tests/faults/test_back_pressure.py::test_an_actor_with_a_full_mailbox_that_is_stuck_is_stopped_within_the_grace_time",
            ),
            "Descriptors: processes use what the hard limit allows": (
                "tests/faults/test_descriptors.py::test_procs_have_as_many_descriptors_as_the_system_allows",
                "tests/faults/test_descriptors.py::test_a_caller_of_a_process_without_descriptors_is_told_so",
                "tests/faults/test_descriptors.py::test_a_process_without_descriptors_is_called_and_stopped_by_means_of_its_reserve",
            ),
            "**No bound locks a program up.**": (
                "tests/faults/test_bounds.py::test_two_actors_that_flood_each_other_both_get_everything",
                "tests/faults/test_bounds.py::test_a_flood_to_an_actor_that_calls_the_flooder_back_goes_through",
            ),
        },
        "How programs end": {
            "normal": (
                "tests/procs/test_smallest_program.py::test_cleanups_run_when_the_program_just_ends",
            ),
            "uncaught exception": (
                "tests/procs/test_new_user.py::test_a_script_that_raises_shows_its_own_traceback_and_leaves_nothing",
            ),
            "`sys.exit(n)`, also in a handler of SIGTERM": (
                "tests/procs/test_smallest_program.py::test_a_program_that_exits_with_a_status_keeps_it",
                "tests/faults/test_interrupts.py::test_a_sigterm_handler_that_exits_during_a_get_sets_the_status",
            ),
            "Ctrl-C": (
                "tests/procs/test_new_user.py::test_control_c_ends_a_call_that_never_returns_promptly_and_quietly[Spins]",
            ),
            "SIGTERM, SIGHUP, SIGKILL, `os._exit(n)`": (
                "tests/procs/test_new_user.py::test_a_client_that_is_killed_leaves_no_process",
            ),
            "unhandled fault": (
                "tests/procs/test_new_user.py::test_an_unhandled_fault_runs_the_finally_blocks_and_exit_handlers_of_the_program",
                "tests/faults/test_exit_faults.py::test_a_hook_that_raises_ends_the_program",
            ),
            "same, and the program swallows the interrupt, calls `sys.exit(0)` or is stuck": (
                "tests/faults/test_exit_faults.py::test_an_unhandled_fault_ends_a_program_with_status_1_and_one_report_though_it[waits in C]",
            ),
            "pytest: passed, failed, Ctrl-C, fault": (
                "tests/faults/test_exit_embedded.py::test_a_fault_fails_the_test_that_caused_it_and_no_other",
            ),
            "a fault at a prompt or in a notebook": (
                "tests/faults/test_exit_embedded.py::test_a_fault_is_raised_by_what_waits_at_a_prompt_and_the_session_goes_on",
            ),
            "`__cleanup__` gets 1 s.": (
                "tests/procs/test_workers.py::test_shutdown_waits_for_a_stuck_endpoint_no_longer_than_the_grace",
            ),
            "2 s after the client": (
                "tests/faults/test_exit_programs.py::test_a_program_ends_with_its_own_status_and_leaves_nothing[family: sigkill]",
                "tests/faults/test_exit_programs.py::test_a_program_ends_with_its_own_status_and_leaves_nothing[get: sigterm that exits]",
            ),
            "A session at a prompt or in a notebook is never interrupted by a fault.": (
                "tests/faults/test_exit_embedded.py::test_a_fault_in_a_notebook_ends_no_cell_that_has_seen_it_or_does_not_wait",
            ),
            "Faults of one mesh, cause and reason that come together are one report": (
                "tests/faults/test_exit_faults.py::test_ranks_dying_of_one_cause_are_one_report_and_each_reaches_the_hook",
            ),
            "An error of a `broadcast` that is the last line of a script": (
                "tests/faults/test_ending.py::test_a_fault_of_the_last_line_is_reported_after_any_last_message",
            ),
        },
        "Keep it running": {
            "`OneForOne`": (
                "tests/faults/test_restarts.py::test_one_for_one_replaces_a_killed_process_and_leaves_the_others_alone",
                "tests/faults/test_restarts.py::test_one_for_one_replaces_a_failed_actor_in_its_process",
            ),
            "`AllForOne`": (
                "tests/faults/test_restarts.py::test_all_for_one_gives_every_rank_a_new_process",
            ),
            "`RestForOne`": (
                "tests/faults/test_restarts.py::test_rest_for_one_restarts_what_came_later",
            ),
            "The group: all procs that are given the same strategy object": (
                "tests/faults/test_restarts.py::test_several_proc_meshes_may_share_one_strategy",
            ),
            "Constructors run again with the arguments of the spawn": (
                "tests/faults/test_restarts.py::test_the_bootstrap_function_runs_again_in_a_new_process",
            ),
            "A rank that hangs is started again": (
                "tests/faults/test_hung_ranks.py::test_a_hung_rank_is_restarted_and_its_callers_are_told_why",
                "tests/faults/test_hung_ranks.py::test_a_killed_rank_without_a_strategy_is_a_failure_to_its_owner",
            ),
            "After `CallTimeoutError`": (
                "tests/faults/test_hung_ranks.py::test_ranks_that_have_not_answered_a_call_are_those_that_are_restarted",
            ),
            "`context().actor_instance.incarnation` is 0 at first": (
                "tests/faults/test_restarts.py::test_without_a_strategy_incarnations_are_zero",
            ),
            "A call in flight fails with `SupervisionError`.": (
                "tests/faults/test_restarts.py::test_a_call_in_flight_fails_and_one_that_comes_during_the_restart_waits",
            ),
            "A call that comes while the rank is away waits": (
                "tests/faults/test_restarts.py::test_a_call_of_a_third_process_that_comes_after_a_death_waits_for_the_restart",
            ),
            "Each restart is a warning of the logger": (
                "tests/faults/test_restarts.py::test_a_process_is_replaced_before_any_message_to_it",
            ),
            "One failure more than `max_restarts`": (
                "tests/faults/test_restarts.py::test_one_death_too_many_is_a_fault_that_says_how_often_it_was_tried",
            ),
            "An actor that stops itself, or is stopped, does not start again.": (
                "tests/faults/test_restarts.py::test_an_actor_that_stops_itself_is_not_started_again",
            ),
        },
        "Calls that may be repeated": {
            "Each rank has attempts of its own": (
                "tests/procs/test_retrying.py::test_only_ranks_that_have_not_answered_are_asked_again",
                "tests/procs/test_retrying.py::test_each_attempt_has_the_arguments_of_the_call",
            ),
            "An attempt ends after `timeout` seconds": (
                "tests/faults/test_retrying_faults.py::test_a_call_in_flight_is_repeated_by_the_next_incarnation_of_a_killed_rank",
            ),
            "What the endpoint raises is raised at once.": (
                "tests/procs/test_retrying.py::test_what_an_endpoint_raises_is_raised_at_once_and_never_asked_again",
                "tests/faults/test_retrying_faults.py::test_choose_goes_on_to_the_ranks_that_live_when_one_dies",
            ),
            "An answer counts whichever attempt it belongs to.": (
                "tests/procs/test_retrying.py::test_choose_asks_another_rank_when_one_takes_too_long",
            ),
            "The last error is raised, and says how many attempts were made": (
                "tests/procs/test_retrying.py::test_a_call_that_runs_out_of_attempts_says_so_and_has_the_answers_so_far",
            ),
            "`broadcast`, `stream`, `rref`, `send` and `Accumulator` refuse these options.": (
                "tests/procs/test_retrying.py::test_adverbs_that_cannot_be_repeated_say_so",
            ),
        },
        "A hook of your own": {
            "It is looked up as an attribute at each failure.": (
                "tests/procs/test_new_user.py::test_the_fault_hook_is_looked_up_when_a_fault_arrives",
            ),
            "It runs on a thread of its own, not on the main thread.": (
                "tests/faults/test_exit_faults.py::test_a_hook_may_call_actors_and_the_program_goes_on",
            ),
            "Returning drops the failure.": (
                "tests/faults/test_exit_faults.py::test_a_hook_that_raises_ends_the_program",
            ),
        },
        "Post-mortem of a process": {
            "`ended by SIGKILL`, `the machine had run out of memory`": (
                "tests/faults/test_detection.py::test_the_report_on_a_proc_that_ran_out_of_memory_says_so",
            ),
            "`the control group ... had used all of the 300 MB that it may have`": (
                "tests/pure/test_runtime_children.py::test_the_control_group_that_was_at_its_limit_is_named_with_it",
            ),
            "`Slurm ended job 9: TIMEOUT`, `OOMKilled`, `Evicted`": (
                "tests/pure/test_runtime_faults.py::test_the_loss_of_a_host_is_told_as_its_scheduler_tells_it",
            ),
            "`ended by SIGKILL`, and no such hint": (
                "tests/faults/test_known_pains.py::test_a_failure_tells_how_a_process_ended_and_what_it_printed_last",
            ),
            "`ended by SIGSEGV`, `SIGABRT`, `SIGBUS`": (
                "tests/faults/test_known_pains.py::test_a_failure_tells_how_a_process_ended_and_what_it_printed_last",
            ),
            "`exited with non-zero code 3`": (
                "tests/faults/test_known_pains.py::test_a_failure_tells_how_a_process_ended_and_what_it_printed_last",
            ),
            "`did not listen any more`": (
                "tests/faults/test_deaf.py::test_a_process_that_stops_listening_is_ended_and_its_callers_told",
            ),
            "`its thread has vanished`": (
                "tests/faults/test_actor_threads.py::test_a_thread_that_vanishes_is_missed_however_an_actor_waits_for_it",
            ),
            "`no descriptor is left in the process`": (
                "tests/faults/test_descriptors.py::test_a_caller_of_a_process_without_descriptors_is_told_so",
            ),
            "`stopped by a signal`": (
                "tests/faults/test_frozen.py::test_the_owner_of_a_proc_that_stays_stopped_hears_once_what_it_was",
            ),
            "`the host agent is gone`": (
                "tests/faults/test_told_once.py::test_the_death_of_the_host_agent_is_heard_for_every_proc_talked_to_or_not",
            ),
            "`the host agent is gone`, on an address": (
                "tests/faults/test_lost_hosts.py::test_everybody_who_waits_is_told_and_the_rest_is_of_use[kill]",
            ),
        },
        "How it is tested": {
            "a host agent at 100 % CPU for ever": (
                "tests/faults/test_common_deaths.py::test_the_host_goes_on_when_a_process_dies_together_with_its_owner",
            ),
            "an actor that never ended": (
                "tests/faults/test_ending.py::test_an_actor_ends_though_the_thread_that_delivered_its_last_message_is_slow",
            ),
            "`__cleanup__` that ran twice, or late": (
                "tests/faults/test_ending.py::test_a_cleanup_whose_error_cannot_be_printed_runs_once",
            ),
            "a failure that was none": (
                "tests/faults/test_told_once.py::test_an_actor_that_had_stopped_itself_has_not_failed_when_its_process_dies",
            ),
            "owners that were not told": (
                "tests/faults/test_told_once.py::test_an_owner_hears_of_ranks_spawned_on_processes_known_dead",
            ),
            "a death that was not reported": (
                "tests/faults/test_ending.py::test_a_death_is_told_although_the_agent_had_yet_to_hear_that_the_proc_was_up",
            ),
        },
    },
    "docs/security.md": {
        "What is defended, against whom": {
            "other users of the machine: to send a message to a process, or to pose as one": (
                "tests/faults/test_other_users.py::test_who_knocks_at_every_socket_of_a_program_is_not_heard",
                "tests/faults/test_other_users.py::test_the_name_of_a_process_that_died_is_not_taken_and_it_starts_again",
                "tests/faults/test_trust.py::test_another_user_of_this_host_is_refused_on_a_unix_socket",
            ),
            "other users of the machine: to end or slow a program by knocking at its sockets": (
                "tests/faults/test_other_users.py::test_who_knocks_at_every_socket_of_a_program_is_not_heard",
                "tests/pure/test_net_door.py::test_strangers_are_turned_away_with_a_few_words_in_the_log",
            ),
            "other users of the machine: to have a program read their `monarch.toml`": (
                "tests/pure/test_job_trusted.py::test_a_hosts_file_of_another_user_is_not_read_unless_it_is_named",
            ),
            "other users of the machine: to have a program read or run what they left in `.monarch`, or write through their links": (
                "tests/pure/test_job_trusted.py::test_the_job_that_another_user_has_set_is_not_imported",
                "tests/pure/test_job_trusted.py::test_no_output_goes_through_links_of_others",
            ),
            "other users of the machine: to have a program delete, overwrite or write files": (
                "tests/faults/test_foreign_folders.py::test_where_the_folder_is_not_ours_files_go_to_the_state_folder",
                "tests/faults/test_foreign_folders.py::test_only_files_of_our_names_are_removed_of_those_that_are_too_many",
                "tests/faults/test_foreign_folders.py::test_a_folder_that_is_moved_while_it_is_open_is_still_the_one_written",
                "tests/faults/test_foreign_folders.py::test_a_token_that_another_user_has_put_there_is_not_used",
                "tests/faults/test_foreign_folders.py::test_a_program_that_fails_in_a_shared_folder_loses_nothing",
                "tests/faults/test_foreign_marks.py::test_a_worker_without_an_owner_removes_no_folder_of_others",
                "tests/api/test_files.py::test_files_are_reached_by_their_paths_only_where_there_is_a_reason",
            ),
            "other users of the machine: to have a program show files of ours as the output": (
                "tests/faults/test_foreign_marks.py::test_output_is_not_read_through_a_link",
                "tests/faults/test_foreign_marks.py::test_a_folder_of_ranks_that_is_a_link_is_not_read",
                "tests/faults/test_foreign_marks.py::test_a_mark_is_made_through_no_link",
                "tests/faults/test_foreign_marks.py::test_a_warning_of_another_users_is_none",
                "tests/faults/test_foreign_marks.py::test_a_profile_whose_name_was_guessed_overwrites_nothing",
                "tests/pure/test_slurm_commands.py::test_slurm_gets_the_text_of_a_script_and_no_path",
            ),
            "other users of the machine: to have code of theirs run by modules": (
                "tests/faults/test_foreign_folders.py::test_no_process_of_a_program_imports_from_the_working_directory_of_others",
                "tests/faults/test_foreign_folders.py::test_no_worker_imports_from_the_working_directory_of_others",
            ),
            "other users of the machine: to have code of theirs run by a checkpoint": (
                "tests/pure/test_elastic_checkpoint.py::test_a_checkpoint_of_another_user_is_neither_read_nor_counted_nor_removed",
                "tests/pure/test_elastic_checkpoint.py::test_no_part_is_written_where_another_user_leads",
                "tests/pure/test_elastic_checkpoint.py::test_a_lock_is_no_link_and_no_pipe_that_is_waited_for",
            ),
            "other users of the machine: to lead the caches of `sync` and of environments": (
                "tests/faults/test_foreign_folders.py::test_caches_among_temporary_files_are_not_where_another_user_leads",
                "tests/faults/test_foreign_folders.py::test_what_is_no_socket_in_a_folder_of_sockets_stays",
            ),
            "other users of the machine: to read words that were typed at the debugger": (
                "tests/faults/test_foreign_folders.py::test_the_history_of_the_debugger_is_for_its_user_alone",
            ),
            "other users of the machine: to read the output of `monarch run`, or have it written": (
                "tests/procs/test_run_files.py::test_a_folder_of_this_name_that_another_user_has_made_is_refused",
            ),
            "other users of the machine: to have a program open what they left as a `*.duckdb`": (
                "tests/pure/test_query_command.py::test_what_another_user_has_made_is_no_run_and_is_not_opened",
            ),
            "other users of the machine: to have the contents of the file of a run compute": (
                "tests/pure/test_query_command.py::test_a_file_of_another_user_has_nothing_computed",
                "tests/pure/test_query_command.py::test_a_file_of_another_user_has_no_more_rows_than_a_run_keeps",
            ),
            "other users of the machine: to have no folder be mounted on the machine": (
                "tests/pure/test_mounts_view.py::test_mounts_that_others_have_named_are_left_alone",
            ),
            "other users of the machine: to read large messages on their way": (
                "tests/faults/test_payloads.py::test_segments_vanish_when_the_receiver_of_a_thousand_of_them_is_killed",
            ),
            "other users of the machine: to read or set what ranks of a script tell each other": (
                "tests/faults/test_stores_of_scripts.py::test_another_user_reads_and_sets_no_key",
            ),
            "other users of the machine: to have a job of Slurm write to where links": (
                "tests/pure/test_slurm_marks.py::test_a_script_follows_no_link_that_was_put_into_its_folder",
                "tests/pure/test_slurm_marks.py::test_a_script_makes_nothing_in_a_folder_to_which_a_link_leads",
                "tests/pure/test_slurm_marks.py::test_a_script_makes_nothing_in_a_folder_of_another_user",
            ),
            "other users of the machine: to read or guess the secret": (
                "tests/faults/test_trust.py::test_a_secret_that_others_can_read_or_write_is_refused",
                "tests/faults/test_trust.py::test_a_secret_that_is_too_short_is_refused_with_the_way_to_a_good_one",
                "tests/faults/test_trust.py::test_no_key_is_left_in_a_file_or_a_descriptor",
            ),
            "the network: to send a message to a host": (
                "tests/faults/test_trust.py::test_a_wrong_secret_is_refused_and_both_sides_know_why",
                "tests/faults/test_trust.py::test_without_protection_no_host_listens_beyond_loopback_unless_told_to",
            ),
            "the network: to listen, to change messages, to replay them": (
                "tests/faults/test_trust.py::test_what_was_changed_on_the_way_is_not_handed_on",
                "tests/faults/test_trust.py::test_a_recorded_session_cannot_be_played_again",
                "tests/faults/test_trust.py::test_a_man_in_the_middle_who_passes_the_proofs_on_is_found_out",
            ),
            "the network: to read or set what ranks tell each other as they meet": (
                "tests/faults/test_torch_stores.py::test_ranks_meet_by_init_process_group_and_open_no_store",
            ),
            "the network: to use up memory, descriptors or the log by knocking": (
                "tests/faults/test_trust.py::test_a_listener_that_runs_out_of_descriptors_goes_on_when_there_are_some",
            ),
            "the network: to slow a host by handshakes, each of which takes a millisecond": (
                "tests/pure/test_net_door.py::test_many_handshakes_delay_no_peer_inside",
            ),
            "a peer that is let in, and broken: to crash a process with bytes that are no message": (
                "tests/fuzz/test_live.py::test_no_bytes_of_a_peer_that_is_in_end_a_process_or_keep_it_from_others",
            ),
            "a peer that is let in, and broken: to have a process act on a record": (
                "tests/pure/test_control_records.py::test_fields_of_another_kind_are_refused_with_words_before_any_handler",
                "tests/pure/test_control_records.py::test_what_is_in_fields_is_looked_at_too",
                "tests/pure/test_control_records.py::test_fields_that_are_what_they_should_be_are_not_refused",
            ),
            "a peer that is let in, and broken: to fill the log with records": (
                "tests/pure/test_counted_warnings.py::test_records_with_other_fields_fill_no_log",
                "tests/pure/test_counted_warnings.py::test_what_a_peer_has_sent_is_short_and_no_order_to_a_terminal",
                "tests/pure/test_counted_warnings.py::test_every_loop_that_takes_what_peers_send_counts_its_errors",
            ),
            "who can reach a port of the debugger: to run code in a process": (
                "tests/faults/test_debugger_faults.py::test_a_port_is_open_only_where_asked_for_and_takes_no_user_without_the_token",
                "tests/procs/test_debug_adapter.py::test_another_user_of_the_machine_is_refused",
            ),
            "who can reach a port of the debugger: to run code in a rank through a port for [editors]": (
                "tests/procs/test_debug_adapter_attacks.py::test_what_is_no_message_of_an_editor_reaches_no_rank",
                "tests/procs/test_debug_adapter_attacks.py::test_an_editor_without_the_token_is_told_and_attaches_to_nothing",
                "tests/procs/test_debug_adapter_attacks.py::test_a_page_in_a_browser_reaches_no_rank",
            ),
            "other users of the machine: to read a link to the admin interface in the command line": (
                "tests/faults/test_admin_strangers.py::test_a_link_in_the_command_line_of_a_browser_is_of_no_use_to_others",
                "tests/pure/test_admin_security.py::test_a_link_of_a_command_line_lets_in_its_user_alone",
                "tests/procs/test_tui_faults.py::test_a_link_is_read_from_the_environment_alone",
            ),
            "other users of the machine: to shut the owner out of a port": (
                "tests/faults/test_admin_strangers.py::test_others_leave_room_for_the_owner_at_a_shared_socket",
                "tests/faults/test_admin_strangers.py::test_who_comes_later_does_not_push_the_owner_out_of_the_gateway",
                "tests/faults/test_admin_strangers.py::test_who_holds_connections_does_not_shut_the_owner_out_of_the_debugger",
                "tests/faults/test_admin_strangers.py::test_who_holds_connections_does_not_use_up_a_forwarded_port",
            ),
            "who can reach the admin interface, a page in a user's browser among them: to read what a program does, or to stop it": (
                "tests/pure/test_admin_security.py::test_no_route_answers_without_a_token",
                "tests/pure/test_admin_security.py::test_a_page_of_another_site_does_nothing",
            ),
            "who can reach the admin interface, a page in a user's browser among them: to fill the terminal": (
                "tests/faults/test_admin_junk.py::test_junk_is_refused_and_counted_in_few_lines",
            ),
            "who names meshes, actors, threads, files or hosts, or has an actor print something: to have a terminal obey": (
                "tests/pure/test_words_of_others.py",
                "tests/pure/test_logs_terminal.py::test_of_any_output_only_colours_are_left_that_a_terminal_obeys",
                "tests/pure/test_debugger_commands.py::test_names_and_output_of_ranks_are_text_in_all_that_the_debugger_shows",
                "tests/procs/test_hostile_names.py::test_every_command_is_walked",
                "tests/procs/test_hostile_names.py::test_what_a_program_says_at_its_end_is_text[die]",
            ),
            "who writes files of a folder that is synced: to have it take hours": (
                "tests/pure/test_sync_patterns.py::test_no_pattern_takes_longer_than_its_length_and_the_paths",
                "tests/pure/test_sync_patterns.py::test_a_line_that_is_no_pattern_is_named_with_file_and_line",
            ),
            "who writes files of a folder that is synced: to have it wait": (
                "tests/pure/test_sync_patterns.py::test_what_is_no_file_of_patterns_is_not_waited_for_or_read_without_end",
                "tests/pure/test_sync_patterns.py::test_a_file_of_patterns_without_end_is_refused",
                "tests/pure/test_sync_patterns.py::test_a_file_that_became_a_pipe_since_it_was_looked_at_is_not_waited_for",
            ),
            "who may ask the admin interface in SQL, or send it rows: to read or write files by a query": (
                "tests/pure/test_telemetry_sql.py::test_what_does_not_read_tables_is_refused_in_one_line",
                "tests/pure/test_admin_arrow.py::test_a_small_stream_that_unpacks_to_too_much_is_not_unpacked",
                "tests/pure/test_admin_arrow.py::test_the_size_of_what_a_stream_unpacks_to_is_known_before",
                "tests/faults/test_admin_child.py::test_what_needs_more_memory_than_a_child_has_is_refused_and_ends_the_child",
                "tests/pure/test_admin_streams.py::test_answers_that_are_read_slowly_keep_so_much_in_memory_and_no_more",
                "tests/pure/test_telemetry_sql.py::test_where_an_answer_has_no_room_it_is_refused",
            ),
            "who may ask the admin interface in SQL, or send it rows: to learn paths": (
                "tests/pure/test_telemetry_sql.py::test_no_question_tells_a_path_of_this_user_or_a_variable_of_the_environment",
            ),
            "who names hosts, meshes or interpreters for a user, as in a hostfile: to have ssh": (
                "tests/pure/test_job_refusals.py::test_an_allocation_is_the_id_of_a_job",
                "tests/pure/test_job_refusals.py::test_a_variable_that_no_process_can_have_is_refused",
                "tests/pure/test_job_hostile_words.py::test_slurm_gets_each_word_as_it_is",
                "tests/pure/test_job_hostile_words.py::test_a_machine_that_ssh_reaches_gets_each_word_as_it_is",
                "tests/pure/test_job_hostile_words.py::test_a_node_of_skypilot_gets_each_word_as_it_is",
                "tests/pure/test_job_hostile_words.py::test_a_node_of_ray_gets_each_word_as_it_is",
                "tests/pure/test_job_refusals.py::test_what_a_shell_on_the_way_would_run_is_no_host",
                "tests/pure/test_job_refusals.py::test_a_mesh_has_no_name_of_an_option_or_of_several_lines",
                "tests/pure/test_job_refusals.py::test_an_interpreter_is_one_line_and_no_option",
            ),
            "a user's own mistakes: a port open to everybody; a key that others can read; a pickle from a stranger": (
                "tests/procs/test_workers.py::test_tcp_without_secret_and_certificates_is_refused_at_the_call",
                "tests/procs/test_command_line.py::test_a_secret_file_is_for_its_owner_alone_and_never_overwritten",
                "tests/faults/test_trust.py::test_a_secret_file_is_for_its_owner_only_and_never_written_over",
            ),
        },
        "Pages in a browser": {
            "the admin interface, `monarch dashboard`, `monarch demo`: to have the browser send": (
                "tests/browser/test_dashboard_session.py::test_a_server_at_another_port_gets_no_session_and_can_do_nothing",
                "tests/pure/test_admin_security.py::test_a_link_is_exchanged_once_for_a_session_that_is_no_cookie",
            ),
            "the admin interface, `monarch dashboard`, `monarch demo`: to act without an answer": (
                "tests/browser/test_dashboard_session.py::test_a_server_at_another_port_gets_no_session_and_can_do_nothing",
                "tests/pure/test_admin_security.py::test_a_page_of_another_site_does_nothing",
            ),
            "the admin interface, `monarch dashboard`, `monarch demo`: to come under a name of its own": (
                "tests/pure/test_admin_security.py::test_no_route_answers_under_the_name_of_a_stranger",
            ),
            "the admin interface, `monarch dashboard`, `monarch demo`: to find the link": (
                "tests/browser/test_dashboard_session.py::test_no_page_before_the_dashboard_is_the_link_that_let_in",
            ),
            "the admin interface, `monarch dashboard`, `monarch demo`: to frame the pages": (
                "tests/browser/test_dashboard_session.py::test_a_server_at_another_port_gets_no_session_and_can_do_nothing",
            ),
            "the admin interface, `monarch dashboard`, `monarch demo`: to have the dashboard run": (
                "tests/browser/test_dashboard.py::test_the_policy_of_the_pages_lets_nothing_inline_run",
            ),
            "`monarch metrics --serve`: to read metrics": (
                "tests/procs/test_ports_and_pages.py::test_a_page_gets_no_metrics",
            ),
            "editors' ports: to have the debugger evaluate": (
                "tests/procs/test_debug_adapter_attacks.py::test_a_page_in_a_browser_reaches_no_rank",
            ),
            "`MONARCH_DEBUG_SERVER_PORT`: to say the token": (
                "tests/procs/test_ports_and_pages.py::test_a_page_gets_no_prompt_of_the_debugger",
            ),
            "the store of a script of `monarch run`: to set a key": (
                "tests/faults/test_stores_of_scripts.py::test_what_is_no_query_ends_its_connection_and_no_other",
            ),
            "the port of a host: to say in its body": (
                "tests/browser/test_pages_at_ports.py::test_a_page_gets_nothing_through_the_gateway_of_a_host",
                "tests/faults/test_trust.py::test_garbage_lets_no_peer_in",
            ),
            "**Extensions** of the browser": "is not defended",
            "**What another user's server has left in the browser**": "is not defended",
            "**Pages of one origin**": "is not defended",
            "**That something listens**": "is not defended",
        },
        "What is not": {
            "**Root**": "is not defended",
            "**One's own user.**": "is not defended",
            "**Holders of the secret, or of a certificate of the CA.**": "is not defended",
            "**What a pickle of a peer that is let in does.**": (
                "tests/fuzz/test_live.py::test_no_bytes_of_a_peer_that_is_in_end_a_process_or_keep_it_from_others",
            ),
            "**Actors among each other.**": "is not defended",
            "**Output that goes to a file.**": "is not defended",
            "**What torch opens itself.**": "is not defended",
            "**Use of the machine.**": (
                "tests/faults/test_socket_folders.py::test_the_folder_of_sockets_goes_with_the_program",
            ),
            "**`inproc://` addresses** and TCP ports": (
                "tests/faults/test_trust.py::test_a_server_of_another_user_gets_nothing_from_us",
            ),
            "`/tmp` without the sticky bit": "is not defended",
            "**A script's own folder**": "is not defended",
            "**A folder of checkpoints that another user has made.**": "is not defended",
            "**Faults of libraries that read files**": "is not defended",
        },
        "How it is tested": {
            "`tests/faults/test_other_users.py`": (
                "tests/faults/test_other_users.py::test_who_knocks_at_every_socket_of_a_program_is_not_heard",
                "tests/faults/test_socket_folders.py::test_the_folder_of_sockets_goes_with_the_program",
            ),
            "`tests/pure/test_job_trusted.py`": (
                "tests/pure/test_job_trusted.py::test_a_folder_for_jobs_that_another_user_has_made_is_not_used",
            ),
            "`tests/faults/test_foreign_folders.py`": (
                "tests/api/test_files.py::test_files_are_reached_by_their_paths_only_where_there_is_a_reason",
            ),
            "`tests/faults/test_admin_strangers.py`": (
                "tests/faults/test_admin_strangers.py::test_a_link_in_the_command_line_of_a_browser_is_of_no_use_to_others",
            ),
            "`tests/browser/test_dashboard_session.py`, `tests/browser/test_pages_at_ports.py`": (
                "tests/browser/test_dashboard_session.py::test_a_server_at_another_port_gets_no_session_and_can_do_nothing",
            ),
            "`tests/faults/test_floods_of_connections.py`": (
                "tests/faults/test_floods_of_connections.py::test_heartbeats_and_calls_survive_a_flood_by_who_may_connect[garbage]",
            ),
            "`tests/pure/test_net_door.py`, `tests/faults/test_trust.py`": (
                "tests/pure/test_net_door.py::test_a_crowd_at_the_door_delays_no_peer_inside",
                "tests/faults/test_trust.py::test_garbage_lets_no_peer_in",
            ),
            "`tests/procs/test_ports_and_pages.py`, `tests/procs/test_debug_adapter_attacks.py`": (
                "tests/procs/test_debug_adapter_attacks.py::test_a_page_in_a_browser_reaches_no_rank",
                "tests/procs/test_ports_and_pages.py::test_a_page_gets_no_metrics",
            ),
            "`tests/procs/test_hostile_names.py`": (
                "tests/procs/test_hostile_names.py::test_what_a_program_says_at_its_end_is_text[die]",
            ),
            "`tests/pure/test_admin_security.py`": (
                "tests/pure/test_admin_security.py::test_no_route_answers_without_a_token",
            ),
            "`tests/fuzz`": (
                "tests/fuzz/test_live.py::test_no_bytes_of_a_peer_that_is_in_end_a_process_or_keep_it_from_others",
            ),
        },
    },
    "docs/architecture.md": {
        "Processes": {
            "client": (
                "tests/procs/test_context.py::test_the_client_is_the_root_and_has_no_creator",
            ),
            "host agent": (
                "tests/procs/test_bootstrap.py::test_a_proc_that_is_killed_while_idle_is_reported",
            ),
            "spawner": (
                "tests/procs/test_preload.py::test_a_module_of_the_user_runs_once_for_all_procs",
            ),
            "proc": (
                "tests/procs/test_meshes.py::test_each_proc_is_a_process_of_its_own",
                "tests/procs/test_meshes.py::test_endpoints_never_run_on_the_main_thread_of_a_proc",
            ),
            "**Why an agent?**": (
                "tests/procs/test_stacks.py::test_a_client_that_holds_the_gil_is_seen_by_its_agent",
            ),
            "**Why a spawner?**": (
                "tests/procs/test_bootstrap.py::test_procs_answer_calls_and_end",
            ),
            "**How is a death known?**": (
                "tests/procs/test_supervision_basics.py::test_a_death_of_a_process_is_told_at_once_to_callers_and_to_the_hook",
                "tests/procs/test_new_user.py::test_a_client_that_is_killed_leaves_no_process",
            ),
        },
        "Floors": {
            "*": ("tests/api/test_layering.py",),
        },
        "Inside one process": {
            "**State machines are tables**": (
                "tests/pure/test_wire_link.py",
                "tests/pure/test_hub_lifecycle.py",
                "tests/pure/test_runtime_proc_entry.py",
            ),
            "`wire/link_table.py`": ("tests/pure/test_wire_link.py",),
            "`hub/lifecycle.py`": ("tests/pure/test_hub_lifecycle.py",),
            "`processes/proc_entry.py`": ("tests/pure/test_runtime_proc_entry.py",),
            "**Control records.**": ("tests/pure/test_control_records.py",),
            "**A `Future` is read, a `Promise` is written.**": ("tests/api/test_promises.py",),
            "**Planes**": ("tests/api/test_planes.py",),
        },
        "Messages": {
            "**No thread stands between the caller and the socket.**": (
                "tests/procs/test_slow_path.py::test_one_call_and_its_reply_take_one_send_and_one_receive_on_either_side",
            ),
            "**No thread stands between the socket and the reader.**": (
                "tests/procs/test_slow_path.py::test_the_io_threads_sleep_through_a_loop_of_calls",
                "tests/faults/test_decoding.py::test_a_thread_that_unpickles_holds_up_no_reader_of_other_answers",
            ),
            "Procs connect to each other on first use.": (
                "tests/procs/test_bootstrap.py::test_two_procs_talk_to_each_other",
            ),
            "A call to a mesh is pickled once.": (
                "tests/procs/test_slow_path.py::test_a_call_to_eight_procs_is_pickled_once_and_sent_once_to_each",
                "tests/procs/test_slow_path.py::test_a_large_buffer_for_eight_procs_is_written_once",
            ),
            "Per sender and receiver, messages are handled in the order in which they were sent.": (
                "tests/procs/test_ordering.py::test_interleaved_adverbs_and_slices_are_handled_in_sending_order",
                "tests/procs/test_many_hosts_messages.py::test_what_the_client_sends_in_many_ways_is_handled_in_its_order",
            ),
            "The sockets are in a folder that only their user may enter": (
                "tests/faults/test_socket_folders.py::test_the_folder_of_sockets_goes_with_the_program",
                "tests/faults/test_trust.py::test_another_user_of_this_host_is_refused_on_a_unix_socket",
            ),
        },
        "Output": {
            "A proc prints into pipes that its agent reads.": (
                "tests/procs/test_log_capture.py::test_a_line_says_where_it_was_printed_and_by_which_actor_and_endpoint",
                "tests/procs/test_log_capture.py::test_lines_of_child_processes_and_c_libraries_have_no_author",
                "tests/procs/test_output_pressure.py::test_a_proc_that_prints_more_than_is_shown_waits_and_calls_of_others_go_on",
            ),
        },
        "What a process leaves behind": {
            "Each proc has a *black box*": (
                "tests/faults/test_black_boxes.py::test_what_a_process_was_handling_since_when_is_known_after_its_sigkill",
                "tests/faults/test_black_boxes.py::test_the_life_of_the_dead_is_known_until_the_end",
            ),
            "The report is written by the *pulse*": (
                "tests/faults/test_black_boxes.py::test_an_idle_process_does_not_wake_up_for_telemetry",
            ),
        },
        "Between hosts": {
            "stream": (
                "tests/faults/test_stream.py::test_bytes_arrive_as_they_were_written_both_ways_at_once",
            ),
            "link": (
                "tests/faults/test_links.py::test_frames_go_both_ways_over_one_link_that_one_side_has_dialed",
            ),
            "gateway": (
                "tests/procs/test_many_hosts.py::test_actors_of_every_host_call_those_of_all_hosts",
            ),
            "cast tree": (
                "tests/procs/test_many_hosts_messages.py::test_order_holds_down_a_deep_tree_of_hosts",
            ),
            "order": (
                "tests/procs/test_many_hosts_messages.py::test_senders_on_every_host_are_each_handled_in_their_own_order",
            ),
            "credit": (
                "tests/procs/test_many_hosts_messages.py::test_a_producer_on_another_host_grows_no_process_without_bound",
            ),
            "**A route stands before the frame.**": ("tests/pure/test_routing_one_gateway.py",),
            "**The tree is a function of the list of hosts.**": (
                "tests/faults/test_lost_hosts_between.py::test_those_below_a_lost_host_of_a_tree_are_called_and_answer[kill-1]",
            ),
            "**Attaching is a cast that stays open.**": (
                "tests/procs/test_attach.py::test_a_client_that_reaches_one_worker_only_uses_all_hosts_through_it[False]",
            ),
        },
        "Failures": {
            "`failure`": (
                "tests/faults/test_known_pains.py::test_failures_can_be_pickled_sent_through_ports_and_returned",
            ),
            "`ownership`": ("tests/pure/test_supervision_ownership.py",),
            "`restart`": ("tests/pure/test_supervision_restart.py",),
            "`heartbeat`": (
                "tests/faults/test_frozen.py::test_a_proc_that_stays_stopped_is_ended_and_every_kind_of_caller_is_told",
            ),
            "`deadlock`": ("tests/pure/test_supervision_deadlock.py",),
            "**Restarts keep addresses.**": (
                "tests/faults/test_restarts.py::test_a_holder_of_a_reference_reaches_the_new_incarnation",
            ),
            "**Deadlocks are found by the waiting processes.**": (
                "tests/faults/test_deadlocks.py::test_an_actor_may_catch_it_and_the_chain_crosses_processes",
            ),
        },
    },
}

NO_PROMISES: Mapping[str, Mapping[str, str]] = {
    "docs/failures.md": {"Deadlocks": "advice; the promise stands in the tables"},
    "docs/architecture.md": {"Decisions, and what they rejected": "reasons"},
}
"""Sections with rows or bullets that promise nothing, and what they are."""

LIFE: Mapping[str, tuple[str, ...]] = {
    "actors and calls": (
        "tests/procs/test_calls.py::test_call_one_returns_the_bare_value",
        "tests/procs/test_calls.py::test_call_on_a_slice_reaches_only_its_ranks",
        "tests/procs/test_calls.py::test_stream_yields_one_future_for_each_rank",
        "tests/procs/test_calls.py::test_an_accumulator_folds_the_results_of_all_ranks",
        "tests/procs/test_calls.py::test_an_unpicklable_argument_raises_at_the_caller_and_nothing_is_sent",
        "tests/procs/test_async_actors.py::test_concurrent_endpoints_overlap",
        "tests/procs/test_async_actors.py::test_an_async_endpoint_finishes_before_the_next_message_starts",
        "tests/procs/test_cancelling.py::test_a_call_that_has_begun_goes_on_and_its_future_has_its_result",
        "tests/procs/test_ports.py::test_a_stored_port_is_answered_by_a_later_endpoint_and_the_caller_gets_it",
        "tests/procs/test_futures.py::test_many_threads_read_one_future",
        "tests/procs/test_futures.py::test_a_waiting_reader_does_not_spin",
        "tests/procs/test_context.py::test_the_rank_of_a_message_is_over_what_was_addressed",
        "tests/procs/test_main_classes.py::test_classes_functions_and_constants_of_the_script_are_usable_in_procs",
        "tests/procs/test_mocking.py::test_the_mock_is_spawned_in_place_of_the_class_and_gets_its_arguments",
        "tests/procs/test_bootstrap.py::test_procs_answer_calls_and_end",
        "tests/procs/test_bootstrap.py::test_two_procs_talk_to_each_other",
        "tests/procs/test_ordering.py::test_interleaved_adverbs_and_slices_are_handled_in_sending_order",
        "tests/procs/test_ordering.py::test_each_of_many_senders_is_handled_in_its_own_order",
        "tests/procs/test_async_actors.py::test_an_async_actor_awaits_calls_to_others",
        "tests/procs/test_context.py::test_the_client_is_the_root_and_has_no_creator",
        "tests/procs/test_slow_path.py::test_one_call_and_its_reply_take_one_send_and_one_receive_on_either_side",
        "tests/procs/test_slow_path.py::test_a_call_to_eight_procs_is_pickled_once_and_sent_once_to_each",
        "tests/procs/test_slow_path.py::test_a_broadcast_costs_one_send_per_rank_and_no_reply",
        "tests/procs/test_slow_path.py::test_the_io_threads_sleep_through_a_loop_of_calls",
        "tests/faults/test_payloads.py::test_an_actor_without_anything_to_do_keeps_nothing_of_what_it_was_sent",
    ),
    "meshes": (
        "tests/procs/test_meshes.py::test_a_call_on_a_two_by_two_mesh_returns_values_in_row_major_order",
        "tests/procs/test_meshes.py::test_slices_of_slices_address_the_elements_of_the_original",
        "tests/procs/test_meshes.py::test_an_actor_spawns_procs_on_its_own_host",
        "tests/procs/test_meshes.py::test_leaving_a_with_block_stops_the_procs",
        "tests/procs/test_picked_meshes.py::test_calls_reach_the_ranks_that_were_picked_in_their_order",
        "tests/procs/test_bootstrap.py::test_the_bootstrap_function_runs_on_every_proc_before_any_actor",
        "tests/procs/test_meshes.py::test_each_proc_is_a_process_of_its_own",
        "tests/procs/test_meshes.py::test_endpoints_never_run_on_the_main_thread_of_a_proc",
    ),
    "the end of what runs": (
        "tests/procs/test_lifecycle.py::test_stopping_procs_runs_cleanups_and_ends_the_processes",
        "tests/procs/test_lifecycle.py::test_stopping_an_actor_stops_the_procs_and_actors_it_spawned_children_first",
        "tests/procs/test_lifecycle.py::test_meshes_can_be_made_and_stopped_again_and_again",
        "tests/faults/test_leftovers.py::test_what_an_actor_has_started_is_gone_when_its_procs_are_stopped",
    ),
    "what fails": (
        "tests/faults/test_black_boxes.py::test_what_a_process_was_handling_since_when_is_known_after_its_sigkill",
        "tests/faults/test_black_boxes.py::test_the_life_of_the_dead_is_known_until_the_end",
        "tests/faults/test_deadlocks.py::test_an_actor_may_catch_it_and_the_chain_crosses_processes",
        "tests/faults/test_restarts.py::test_a_holder_of_a_reference_reaches_the_new_incarnation",
    ),
    "many hosts": (
        "tests/procs/test_many_hosts.py::test_a_broadcast_reaches_everybody_once_before_the_next_call",
        "tests/procs/test_many_hosts.py::test_errors_come_back_with_their_rank_and_the_actors_live_on",
        "tests/procs/test_many_hosts_procs.py::test_a_killed_proc_of_another_host_starts_again_with_its_actors",
        "tests/procs/test_many_hosts_procs.py::test_stopping_procs_ends_them_on_all_hosts",
        "tests/procs/test_many_hosts.py::test_actors_of_every_host_call_those_of_all_hosts",
        "tests/procs/test_many_hosts_messages.py::test_senders_on_every_host_are_each_handled_in_their_own_order",
        "tests/faults/test_links.py::test_frames_go_both_ways_over_one_link_that_one_side_has_dialed",
    ),
    "rdma": (
        "tests/faults/test_rdma_faults.py::test_of_several_owners_the_dead_one_is_told_of_and_the_others_are_read",
        "tests/procs/test_rdma_paths.py::test_one_action_may_read_here_and_write_there[vm]",
        "tests/procs/test_rdma_paths.py::test_a_key_that_was_guessed_opens_nothing[vm]",
        "tests/procs/test_rdma_paths.py::test_a_part_can_be_read[messages]",
        "tests/procs/test_rdma_leases.py::test_memory_outlives_what_the_owner_had_as_long_as_there_is_a_handle",
        "tests/procs/test_rdma_leases.py::test_a_process_that_ends_holds_nothing_any_more",
        "tests/procs/test_rdma_replicas.py::test_a_replica_has_each_version_that_it_pulls",
    ),
    "tensors": (
        "tests/procs/test_tensor_basics.py::test_what_failed_is_told_with_both_sides_of_it",
        "tests/procs/test_tensor_actors.py::test_each_actor_gets_the_tensor_of_its_rank",
        "tests/procs/test_tensor_remote.py::test_a_function_runs_on_each_rank_with_its_tensors",
        "tests/procs/test_tensor_transfer.py::test_a_tensor_moves_rank_to_rank",
        "tests/faults/test_tensor_faults.py::test_a_reduction_with_a_dead_rank_ends",
    ),
    "spmd": (
        "tests/procs/test_spmd.py::test_every_rank_has_the_variables_of_torch_elastic",
        "tests/procs/test_spmd.py::test_a_script_and_a_module_run_as_a_rank",
    ),
    "jobs": (
        "tests/procs/test_jobs.py::test_state_can_be_asked_for_again",
        "tests/faults/test_job_workers.py::test_a_worker_that_dies_at_its_start_is_an_error_at_once_with_its_output",
        "tests/procs/test_commands.py::test_scripts_of_bash_run_on_the_ranks_that_are_meant",
        "tests/procs/test_status.py::test_what_would_make_a_program_fail_is_named",
    ),
    "services": (
        "tests/procs/test_service.py::test_a_service_gets_larger_and_smaller_while_it_runs",
        "tests/procs/test_service.py::test_what_an_endpoint_raises_is_raised_at_the_caller",
        "tests/faults/test_service_faults.py::test_the_calls_of_a_replica_that_hangs_end_and_it_is_replaced",
    ),
    "queues and pools": (
        "tests/procs/test_queues.py::test_each_item_of_many_producers_is_taken_once_in_the_order_of_its_producer",
        "tests/procs/test_queues.py::test_who_puts_more_than_there_is_room_for_waits_or_is_told",
        "tests/procs/test_queues.py::test_an_item_for_a_consumer_that_has_died_is_given_to_another",
        "tests/procs/test_queues.py::test_a_replay_buffer_draws_by_order_and_drops_what_is_too_old",
        "tests/procs/test_pool.py::test_results_come_in_the_order_of_the_items",
    ),
    "data": (
        "tests/procs/test_data_feed.py::test_each_rank_gets_its_batches_in_order_to_the_end",
        "tests/procs/test_data_feed.py::test_a_loader_that_dies_is_started_again_and_no_batch_is_lost_or_twice",
    ),
    "elastic": (
        "tests/faults/test_elastic.py::test_when_all_ranks_have_died_it_does_not_begin_again_from_nothing",
    ),
    "sync": ("tests/procs/test_sync.py::test_new_procs_run_the_code_as_it_is_now",),
    "mounts": (
        "tests/procs/test_mounts_content.py::test_a_block_is_written_to_who_asks_as_far_as_the_file_goes",
    ),
    "telemetry": (
        "tests/procs/test_telemetry_query.py::test_a_program_asks_itself",
        "tests/procs/test_telemetry_collect.py::test_a_killed_proc_and_its_actors_are_still_in_the_tables",
        "tests/procs/test_telemetry_messages.py::test_handled_messages_are_counted_exactly_by_endpoint_without_any_switch",
        "tests/procs/test_telemetry_metrics.py::test_spans_nest_and_say_how_long_they_took",
        "tests/procs/test_profile.py::test_a_profile_is_used_once_and_exported_after_its_end",
        "tests/procs/test_statistics.py::test_each_message_is_counted_by_who_sends_and_by_who_receives_it",
    ),
    "why": ("tests/faults/test_why.py::test_a_program_in_which_nothing_runs_is_fine_and_says_so",),
    "stacks": (
        "tests/procs/test_stacks.py::test_several_who_look_at_a_process_at_once_see_the_same",
    ),
    "logs": (
        "tests/procs/test_log_files.py::test_the_files_of_procs_that_were_stopped_are_closed",
        "tests/procs/test_logs_view.py::test_only_some_ranks_are_shown",
        "tests/procs/test_output_order.py::test_a_line_is_shown_before_the_answer_that_follows_it",
        "tests/procs/test_flush_logs.py::test_all_that_was_written_is_shown_when_asked_for",
        "tests/procs/test_log_capture.py::test_a_line_says_where_it_was_printed_and_by_which_actor_and_endpoint",
        "tests/procs/test_log_capture.py::test_lines_of_child_processes_and_c_libraries_have_no_author",
    ),
    "debugger": (
        "tests/procs/test_debugger.py::test_quit_ends_one_session_and_its_caller_gets_one_error",
        "tests/procs/test_debugger.py::test_cast_sends_a_command_to_the_selected_ranks",
    ),
    "tui": (
        "tests/procs/test_tui_faults.py::test_what_was_seen_stays_with_its_age_until_the_connection_is_back",
    ),
    "admin and dashboard": (
        "tests/procs/test_admin_jobs.py::test_a_port_that_is_taken_and_an_address_without_tls_are_errors_at_once",
        "tests/procs/test_admin.py::test_the_tree_is_walked_by_references",
        "tests/procs/test_demo.py::test_the_verdict_names_the_rank_with_the_fault",
    ),
    "tools": (
        "tests/procs/test_shell.py::test_a_client_that_is_killed_takes_its_shell_along",
        "tests/procs/test_command_line.py::test_without_a_command_it_shows_what_there_is",
        "tests/procs/test_forward.py::test_a_connection_reaches_the_proc_at_the_same_point",
    ),
}

PAINS: Mapping[str, tuple[str, ...]] = {
    "A mesh with a dead rank, or a stopped one, may be called inside of `except`: nothing happens to the caller.": (
        "tests/faults/test_known_pains.py::test_calling_what_is_dead_raises_and_does_no_harm",
        "tests/procs/test_lifecycle.py::test_calling_a_stopped_mesh_raises_and_harms_no_other",
        "tests/procs/test_lifecycle.py::test_calling_actors_of_stopped_procs_raises_and_harms_no_other",
        "tests/procs/test_lifecycle.py::test_an_actor_that_calls_a_stopped_mesh_gets_the_error_and_serves_on",
        "tests/procs/test_supervision_basics.py::test_the_owner_of_a_failed_actor_hears_of_it_once_and_lives_on_if_it_handles_it",
    ),
    "A `CancelledError` that escapes an async endpoint is an error of that call.": (
        "tests/procs/test_async_actors.py::test_an_escaping_cancelled_error_is_an_error_of_the_call_and_the_actor_serves_on",
        "tests/procs/test_async_actors.py::test_a_cancelled_error_escaping_a_broadcast_is_a_failure",
        "tests/faults/test_actor_threads.py::test_an_actor_that_cancels_every_task_of_its_loop_has_failed_and_is_not_silent",
        "tests/faults/test_failure_matrix.py::test_what_follows_from",
    ),
    "A proc on which an actor failed takes new actors; after a failed controller others can be made.": (
        "tests/procs/test_supervision_basics.py::test_a_proc_on_which_an_actor_failed_takes_new_actors",
        "tests/procs/test_supervision_basics.py::test_an_actor_that_failed_in_the_clients_process_does_not_prevent_new_ones",
        "tests/procs/test_controllers.py::test_the_failure_of_one_controller_does_not_prevent_new_ones_nor_harm_others",
        "tests/faults/test_known_pains.py::test_controllers_can_be_made_by_anybody_after_others_have_failed_in_every_way",
        "tests/faults/test_failure_matrix.py::test_what_follows_from",
        "tests/faults/test_failure_matrix.py::test_what_follows_from_an_actor_that_cannot_be_constructed",
    ),
    "Stopping busy procs is no fault.": (
        "tests/procs/test_lifecycle.py::test_stopping_busy_procs_ends_them_within_the_grace_time_and_is_no_fault",
        "tests/procs/test_lifecycle.py::test_a_constructor_that_never_returns_does_not_block_the_stop_of_its_procs",
        "tests/faults/test_ending.py::test_what_a_stuck_actor_owned_ends_with_it",
    ),
    "After the death of a host everything that one does with it ends soon, and says so.": (
        "tests/faults/test_known_pains.py::test_what_one_does_with_a_host_that_is_dead_ends_soon_and_says_so",
        "tests/faults/test_frozen.py::test_a_host_whose_own_processes_stay_stopped_is_lost_as_a_whole",
        "tests/faults/test_exit_shutdown.py::test_it_is_bounded_with",
        "tests/faults/test_lost_hosts_midway.py::test_spawning_on_it_fails_and_the_other_hosts_have_their_procs",
        "tests/faults/test_lost_hosts_midway.py::test_spawning_actors_on_it_fails_there_alone",
        "tests/faults/test_lost_hosts_between.py::test_actors_of_other_hosts_that_wait_or_own_something_there_are_told",
        "tests/faults/test_machines.py::test_a_longer_one_is_the_loss_of_the_host_to_everybody_who_waits",
    ),
    "No process outlives its client, neither here nor on hosts that it attached.": (
        "tests/faults/test_lost_clients.py::test_what_a_client_had_on_hosts_that_it_reaches_through_another_ends_with_it",
        "tests/faults/test_lost_clients.py::test_clients_that_came_and_went_leave_nothing_on_a_worker",
        "tests/procs/test_new_user.py::test_a_client_that_is_killed_leaves_no_process",
        "tests/faults/test_frozen.py::test_a_proc_that_is_stopped_does_not_outlive_a_client_that_is_killed",
        "tests/faults/test_frozen_together.py::test_all_end_though_several_of_them_stand_still",
    ),
    "No wait is for ever: lost replies, forgotten ports, calls to oneself, references whose owner is gone.": (
        "tests/faults/test_lost_links.py::test_caller_and_owner_hear_of_a_broken_link_to_a_living_process",
        "tests/faults/test_forgotten_ports.py::test_a_caller_is_told_that_its_port_was_forgotten_and_the_actor_serves_on",
        "tests/faults/test_forgotten_ports.py::test_a_port_that_is_kept_is_forgotten_when_a_later_endpoint_lets_go_of_it",
        "tests/procs/test_ports.py::test_an_actor_that_is_stopped_releases_callers_it_never_answered",
        "tests/procs/test_futures.py::test_an_actor_that_waits_for_itself_gets_an_error_that_says_what_to_do",
        "tests/faults/test_deadlocks.py::test_actors_that_wait_for_each_other_are_told_so_and_go_on",
        "tests/faults/test_known_pains.py::test_a_reference_whose_owner_is_gone_says_so_to_everybody_who_calls_it",
    ),
    "A fault interrupts the main thread at any work, exits with status 1, and is not the last to be delivered.": (
        "tests/faults/test_exit_faults.py::test_faults_after_the_first_reach_the_hook_and_are_reported",
        "tests/faults/test_exit_faults.py::test_two_faults_at_once_are_both_reported",
        "tests/procs/test_supervision_basics.py::test_a_hook_that_returns_drops_the_fault_and_later_faults_still_arrive",
    ),
    "No error vanishes: at the end of the script, of a call that is not read, of a task, in `__cleanup__`.": (
        "tests/procs/test_new_user.py::test_a_fault_at_the_very_end_of_the_script_is_not_lost",
        "tests/faults/test_ending.py::test_a_fault_of_the_last_line_is_reported_after_any_last_message",
        "tests/faults/test_unread_errors.py::test_an_error_that_is_not_read_is_warned_of_once_when_its_future_goes",
        "tests/faults/test_unread_errors.py::test_what_is_unread_when_the_program_ends_is_told_once",
        "tests/procs/test_errors.py::test_a_cleanup_that_raises_is_reported_once_however_the_actor_ended",
        "tests/faults/test_known_pains.py::test_the_error_of_a_task_that_is_not_awaited_is_printed",
    ),
    "A result that has arrived is not lost when the mesh stops or fails before it is read.": (
        "tests/procs/test_futures.py::test_a_result_that_has_arrived_is_not_lost_when_the_mesh_is_stopped",
        "tests/procs/test_errors.py::test_a_result_that_has_arrived_is_not_lost_when_a_rank_dies",
    ),
    "Exceptions that cannot be pickled or rebuilt are errors of their call, and the actor serves on.": (
        "tests/procs/test_calls.py::test_an_exception_of_any_make_arrives_as_actor_error_and_the_actor_serves_on",
    ),
    "`call` fails with the first rank that fails, and tells of all of them.": (
        "tests/procs/test_calls.py::test_call_does_not_wait_for_slow_ranks_once_one_has_failed",
        "tests/procs/test_errors.py::test_the_error_of_a_call_tells_of_every_rank_that_has_failed_by_now",
        "tests/procs/test_errors.py::test_a_call_can_wait_for_all_ranks_although_one_has_failed",
    ),
    "`choose` picks among those that are alive.": (
        "tests/procs/test_supervision_basics.py::test_choose_finds_the_ranks_that_are_alive",
    ),
    "A message over the size limit is an error at once, and the connection goes on.": (
        "tests/procs/test_errors.py::test_a_message_over_the_limit_fails_at_once_and_the_connection_stays",
    ),
    "A failure says what failed under the names that the program gave; it can be sent, and nothing internal is ever told of.": (
        "tests/faults/test_known_pains.py::test_a_failure_tells_which_rank_of_which_mesh_an_exception_ended",
        "tests/faults/test_known_pains.py::test_a_failure_tells_how_a_process_ended_and_what_it_printed_last",
        "tests/faults/test_known_pains.py::test_failures_can_be_pickled_sent_through_ports_and_returned",
        "tests/faults/test_known_pains.py::test_a_proc_that_dies_while_it_is_set_up_is_told_of_under_its_own_name",
        "tests/faults/test_known_pains.py::test_the_error_of_a_bootstrap_function_names_the_procs_it_ran_on",
        "tests/procs/test_controllers.py::test_a_controllers_failure_skips_the_hook_and_reaches_its_callers",
        "tests/procs/test_bootstrap.py::test_a_proc_that_is_killed_while_idle_is_reported",
        "tests/procs/test_bootstrap.py::test_a_bootstrap_function_that_raises_is_told_to_the_users_of_the_procs",
        "tests/procs/test_supervision_basics.py::test_the_hook_is_called_once_for_each_failed_rank",
    ),
    "The death of a process is told at once.": (
        "tests/faults/test_detection.py::test_a_caller_is_told_of_the_death_of_a_proc_at_once",
        "tests/faults/test_detection.py::test_an_actor_that_waits_is_told_of_the_death_of_another_proc_at_once",
    ),
    "A process that was stopped and goes on has never been away; one that does not can be replaced.": (
        "tests/faults/test_frozen.py::test_who_goes_on_before_the_timeout_has_never_been_away",
        "tests/faults/test_frozen.py::test_a_program_of_which_every_process_was_stopped_goes_on_as_if_nothing_had_been",
        "tests/faults/test_restarts.py::test_one_for_one_replaces_a_killed_process_and_leaves_the_others_alone",
    ),
    "The text of an exception shows the frames of the program and nothing of the engine.": (
        "tests/procs/test_calls.py::test_the_remote_traceback_does_not_show_the_frames_of_the_engine",
        "tests/procs/test_errors.py::test_a_traceback_shows_the_remote_frames_once_and_one_frame_of_the_engine",
    ),
}
"""What hurts most in Monarch 0.7 when something fails, and the tests that show that it does not here;
`--all` runs them all.
"""


PAGES_OF_A_PLAIN_RUN = ("README.md", "docs/failures.md", "docs/security.md")


def _tests_of(pages: Iterable[str]) -> Iterator[str]:
    for page in pages:
        for entries in PROMISES[page].values():
            for held in entries.values():
                yield from () if isinstance(held, str) else held


TESTS = frozenset((*_tests_of(PAGES_OF_A_PLAIN_RUN), *chain(*LIFE.values())))
"""Those that a plain run has."""
NAMED = TESTS.union(_tests_of(PROMISES))
"""Those that hold any page."""


def is_promised(node_id: str) -> bool:
    """Whether a test stands in this table for a plain run: itself, all ids of its function, or its
    whole file.

    Args:
        node_id: As pytest has it, from the folder of the repository:
            ``"tests/procs/test_calls.py::test_a_large_argument_arrives_whole[local]"``.
    """
    return _is_in(TESTS, node_id)


def is_named(node_id: str) -> bool:
    """Whether a test stands in this table for any page."""
    return _is_in(NAMED, node_id)


def _is_in(tests: frozenset[str], node_id: str) -> bool:
    function = node_id.partition("[")[0]
    return node_id in tests or function in tests or function.partition("::")[0] in tests
