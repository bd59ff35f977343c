//! `nri`: plugins, and what has become of them.

use std::process::ExitCode;

use mainstay_messages::Error;
use mainstay_messages::error::Kind;
use mainstay_messages::plugin::{PluginNeed, PluginStatus};

use crate::arguments::{NriCommand, Plugins};
use crate::connection::Context;
use crate::failure::Result;
use crate::table::{Align, Table};

/// `mainstay nri …`
pub(super) async fn run(context: &Context, command: NriCommand) -> Result<ExitCode> {
    let daemon = context.daemon().await?;
    match command {
        NriCommand::Plugins => {
            let plugins = daemon.list_plugins().await?;
            super::print(context.format(), || table(&plugins), &plugins)
        }
        NriCommand::Inspect(Plugins { plugins: names }) => {
            let all = daemon.list_plugins().await?;
            let find = |name: &String| {
                let found = all.iter().find(|plugin| plugin.name == *name);
                found.ok_or_else(|| Error::not_found(Kind::Plugin, name))
            };
            let plugins = names.iter().map(find).collect::<Result<Vec<_>, _>>()?;
            super::print(context.format(), || plugins.iter().map(|plugin| whole(plugin)).collect(), &plugins)
        }
        NriCommand::Restart(Plugins { plugins }) => {
            for plugin in plugins {
                daemon.restart_plugin(plugin).await?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn table(plugins: &[PluginStatus]) -> String {
    let mut table = Table::new([
        ("PLUGIN", Align::Left),
        ("STATE", Align::Left),
        ("PID", Align::Right),
        ("FAIL", Align::Left),
        ("REQUIRED", Align::Left),
        ("STRIKES", Align::Right),
        ("KNOWS", Align::Right),
    ]);
    for plugin in plugins {
        table.row([
            plugin.name.clone(),
            plugin.state.to_string(),
            plugin.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            plugin.fail.to_string(),
            need(plugin).to_owned(),
            plugin.strikes.to_string(),
            plugin.objects.to_string(),
        ]);
    }
    table.to_string()
}

fn whole(plugin: &PluginStatus) -> String {
    let pid = plugin.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
    let rows = [
        ("plugin", plugin.name.clone()),
        ("state", plugin.state.to_string()),
        ("pid", pid),
        ("fail", plugin.fail.to_string()),
        ("required", need(plugin).to_owned()),
        ("strikes", plugin.strikes.to_string()),
        ("requests that wait", plugin.waiting.to_string()),
        ("pods and containers", plugin.objects.to_string()),
        ("events", plugin.events.join(", ")),
    ];
    rows.iter().map(|(title, value)| format!("{title:20} {value}\n")).collect()
}

fn need(plugin: &PluginStatus) -> &'static str {
    match plugin.need {
        PluginNeed::Required => "yes",
        PluginNeed::Optional => "no",
    }
}

#[cfg(test)]
mod tests {
    use mainstay_messages::plugin::{PluginFail, PluginState};

    use super::*;

    #[test]
    fn plugins_as_people_see_them() {
        let plugin = PluginStatus {
            name: "10-logger".to_owned(),
            state: PluginState::Live,
            pid: Some(17),
            events: vec!["RunPodSandbox".to_owned(), "StopPodSandbox".to_owned()],
            fail: PluginFail::Open,
            need: PluginNeed::Optional,
            strikes: 0,
            waiting: 2,
            objects: 300,
        };
        let expected = "\
PLUGIN      STATE   PID   FAIL   REQUIRED   STRIKES   KNOWS
10-logger   live     17   open   no               0     300
";
        assert_eq!(table(std::slice::from_ref(&plugin)), expected);
        let shown = whole(&plugin);
        assert!(shown.ends_with("events               RunPodSandbox, StopPodSandbox\n"), "{shown}");
    }
}
