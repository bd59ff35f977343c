//! Other people's runtimes and shims, on real processes: one list of scenarios, each once for every handler; and a shim that
//! fails as it is told to, beside the promises.

mod control;
mod ends;
mod fault_shim;
mod faults;
mod restarts;
mod setting;
mod shims;
mod stage;
mod streams;

/// Makes a test of each scenario and handler.
macro_rules! scenarios {
    ($($module:ident::$name:ident),+ $(,)?) => {
        /// Each scenario, once for every handler.
        mod matrix {
            use crate::stage::{By, Stage};
            $(
                #[rstest::rstest]
                #[tokio::test]
                async fn $name(#[values(By::Mainstay, By::Runc, By::Crun, By::RuncShim)] by: By) {
                    if let Some(stage) = Stage::take(by, stringify!($name)).await {
                        crate::$module::$name(stage).await;
                    }
                }
            )+
        }
    };
}

scenarios! {
    ends::an_exit_keeps_its_code,
    ends::a_signal_is_told_as_one,
    ends::a_command_that_cannot_run_is_a_start_error,
    ends::a_folder_is_no_command,
    ends::out_of_memory_is_told_from_a_kill,
    ends::a_storm_of_exits_appears_once_each,
    ends::a_killed_shim_ends_its_containers,
    ends::removal_kills_what_runs_and_frees_its_name,
    streams::logs_are_the_exact_bytes,
    streams::an_exec_has_output_code_and_input,
    streams::a_mebibyte_of_an_exec_arrives_whole,
    streams::a_terminal_has_its_size,
    streams::a_terminal_of_an_exec_has_its_size,
    streams::attaching_before_the_start_loses_nothing,
    streams::a_log_is_reopened,
    control::stop_keeps_its_grace_time,
    control::a_stopped_container_ends_with_its_own_code,
    control::signals_reach_execs,
    control::a_paused_container_stands_still,
    control::limits_can_be_changed,
    control::use_is_measured,
    setting::a_process_has_what_its_spec_says,
    setting::containers_of_a_pod_share_what_pods_share,
    setting::mounts_are_there_and_the_root_is_not_the_hosts,
    setting::security_settings_hold,
    shims::shims_are_described,
    restarts::a_killed_daemon_costs_no_exit_and_no_line,
    restarts::what_ran_goes_on_and_can_be_used,
    restarts::what_was_created_can_still_be_started,
}
