//! The section on plugins, as a text, and what is checked of it.

use std::path::PathBuf;

use mainstay_supervisor::nri::NriSettings;

/// Paths that are set, with their keys.
pub(super) fn paths(settings: &NriSettings) -> impl Iterator<Item = (&'static str, &PathBuf)> {
    let NriSettings { socket, plugin_dir, plugin_config_dir, .. } = settings;
    let paths = [
        ("nri.socket", socket),
        ("nri.plugin_dir", plugin_dir),
        ("nri.plugin_config_dir", plugin_config_dir),
    ];
    paths.into_iter().filter(|(_, path)| !path.as_os_str().is_empty())
}

/// The section as a commented text.
pub(super) fn text(settings: &NriSettings) -> String {
    let NriSettings {
        enable,
        socket,
        plugin_dir,
        plugin_config_dir,
        request_timeout_ms,
        turn_timeout_ms,
        event_timeout_ms,
        registration_timeout_ms,
        synchronize_timeout_ms,
        strikes_max,
        parallel_max,
        queue_max,
        ..
    } = settings;
    format!(
        "# Plugins that watch and change pods and containers by the Node Resource Interface (NRI).\n\
         [nri]\n\
         enable = {enable}\n\
         # Where plugins connect. Another runtime that has the socket keeps it: then no plugin can connect here.\n\
         # \"\": none can.\n\
         socket = {socket:?}\n\
         # Executables NN-NAME that are started with the daemon, and what is said to plugins: NN-NAME.conf, or else\n\
         # NAME.conf. \"\": none.\n\
         plugin_dir = {plugin_dir:?}\n\
         plugin_config_dir = {plugin_config_dir:?}\n\
         # Time for an answer, for a request to have its turn with a busy plugin, for all plugins together to hear of one\n\
         # event (at most 20000), for a plugin to register, and to take one part of what there is, in milliseconds.\n\
         request_timeout_ms = {request_timeout_ms}\n\
         turn_timeout_ms = {turn_timeout_ms}\n\
         event_timeout_ms = {event_timeout_ms}\n\
         registration_timeout_ms = {registration_timeout_ms}\n\
         synchronize_timeout_ms = {synchronize_timeout_ms}\n\
         # Answers missed in a row after which a plugin is disconnected, or started again. One answer that is missed\n\
         # costs its request alone, and the plugin is told of all there is again.\n\
         strikes_max = {strikes_max}\n\
         # Requests that a plugin has at once (plugins for other runtimes count on one), and that may wait for it.\n\
         parallel_max = {parallel_max}\n\
         queue_max = {queue_max}\n\
         # What becomes of a request that a plugin does not answer: \"open\" goes on without it, \"closed\" fails. A plugin\n\
         # that says no is heard in any case, and what is to stop stops in any case.\n\
         fail = \"open\"\n\
         # Plugins without which no pod and no container is made, as in [\"10-policy\"].\n\
         required = []\n\
         # For single plugins:\n\
         # [nri.plugins.10-policy]\n\
         # fail = \"closed\"\n\
         # request_timeout_ms = 5000\n\
         # parallel_max = 4\n"
    )
}
