//! `shims`: the processes that stand between the daemon and its containers.

use std::process::ExitCode;

use mainstay_messages::Timestamp;
use mainstay_messages::shim::{ShimBackend, ShimProcess, ShimSaid, ShimStatus};

use crate::connection::Context;
use crate::failure::Result;
use crate::table::{Align, Table};
use crate::view::ShimView;
use crate::words::{bytes, span};

/// What is shown of what nobody says.
const UNKNOWN: &str = "?";
/// What is shown of what there is not.
const NONE: &str = "-";
/// What the program of a pod's own shim is called.
const OWN: &str = "mainstay-shim";

/// `mainstay shims`
pub(super) async fn shims(context: &Context) -> Result<ExitCode> {
    let client = context.daemon().await?;
    let shims = client.list_shims().await?;
    let views: Vec<_> = shims.iter().map(ShimView::from).collect();
    super::print(context.format(), || table(&shims, super::now()), &views)
}

/// A row for each pod's own shim, and below it one for each process behind it, or for the program that is run for a step.
fn table(shims: &[ShimStatus], now: Timestamp) -> String {
    let mut table = Table::new([
        ("POD", Align::Left),
        ("NAME", Align::Left),
        ("HANDLER", Align::Left),
        ("PROGRAM", Align::Left),
        ("VERSION", Align::Left),
        ("PROTOCOL", Align::Left),
        ("PID", Align::Right),
        ("CONTAINERS", Align::Right),
        ("MEMORY", Align::Right),
        ("AGE", Align::Left),
    ]);
    for ShimStatus { sandbox, name, handler, shim } in shims {
        let said = shim.said.as_ref().ok();
        let tell = |what: &dyn Fn(&ShimSaid) -> String| said.map_or_else(|| UNKNOWN.to_owned(), what);
        let [pid, memory, since] = process(&shim.process, now);
        table.row([
            sandbox.short().to_owned(),
            name.clone(),
            handler.clone().unwrap_or_else(|| NONE.to_owned()),
            OWN.to_owned(),
            tell(&|said| said.version.clone()),
            tell(&|said| format!("mainstay {}", said.protocol)),
            pid,
            tell(&|said| said.containers.to_string()),
            memory,
            since,
        ]);
        let Some(ShimBackend { program, version, protocol, processes }) =
            said.and_then(|said| said.backend.as_ref())
        else {
            continue;
        };
        let mut behind = |[pid, memory, since]: [String; 3]| {
            let [pod, name, handler] = std::array::from_fn(|_| String::new());
            let program = format!("└ {program}");
            let version = if version.is_empty() { UNKNOWN } else { version }.to_owned();
            let protocol = protocol.clone();
            table.row([pod, name, handler, program, version, protocol, pid, String::new(), memory, since]);
        };
        if processes.is_empty() {
            behind([NONE.to_owned(), NONE.to_owned(), String::new()]);
        }
        processes.iter().for_each(|one| behind(process(one, now)));
    }
    table.to_string()
}

fn process(process: &ShimProcess, now: Timestamp) -> [String; 3] {
    let unknown = || UNKNOWN.to_owned();
    [
        process.pid.to_string(),
        process.private_bytes.map_or_else(unknown, bytes),
        process.since.map_or_else(unknown, |since| span(now.nanos_since(since))),
    ]
}

#[cfg(test)]
mod tests {
    use mainstay_messages::shim::ShimDescription;
    use mainstay_messages::{Error, SandboxId};

    use super::*;

    fn process(pid: u32) -> ShimProcess {
        ShimProcess { pid, private_bytes: Some(300 << 10), since: Some(Timestamp(0)) }
    }

    fn shim(name: &str, handler: Option<&str>, said: Result<Option<ShimBackend>, Error>) -> ShimStatus {
        let said =
            said.map(|backend| ShimSaid { version: "0.1.0".to_owned(), protocol: 3, containers: 2, backend });
        let shim = ShimDescription { process: process(17), said };
        ShimStatus {
            sandbox: SandboxId::from_random([1; 16]),
            name: name.to_owned(),
            handler: handler.map(str::to_owned),
            shim,
        }
    }

    #[test]
    fn what_stands_behind_a_shim_is_below_it() {
        let kata = ShimBackend {
            program: "/bin/kata".to_owned(),
            version: String::new(),
            protocol: "task v2".to_owned(),
            processes: vec![process(18)],
        };
        let runc = ShimBackend {
            program: "/bin/runc".to_owned(),
            version: "1.1.5".to_owned(),
            protocol: "oci".to_owned(),
            processes: Vec::new(),
        };
        let silent = Error::DeadlineExceeded { what: "it".to_owned(), after_ms: 1_000 };
        let shims = [
            shim("a", None, Ok(None)),
            shim("b", Some("kata"), Ok(Some(kata))),
            shim("c", Some("runc"), Ok(Some(runc))),
            shim("d", None, Err(silent)),
        ];
        let expected = "\
POD            NAME   HANDLER   PROGRAM         VERSION   PROTOCOL     PID   CONTAINERS    MEMORY   AGE
010101010101   a      -         mainstay-shim   0.1.0     mainstay 3    17            2   300 KiB   5 seconds
010101010101   b      kata      mainstay-shim   0.1.0     mainstay 3    17            2   300 KiB   5 seconds
                                └ /bin/kata     ?         task v2       18                300 KiB   5 seconds
010101010101   c      runc      mainstay-shim   0.1.0     mainstay 3    17            2   300 KiB   5 seconds
                                └ /bin/runc     1.1.5     oci            -                      -
010101010101   d      -         mainstay-shim   ?         ?             17            ?   300 KiB   5 seconds
";
        assert_eq!(table(&shims, Timestamp(5_000_000_000)), expected);
    }
}
