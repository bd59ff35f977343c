//! `ps` and `pods`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::process::ExitCode;

use futures::stream::{self, StreamExt};
use mainstay_admin::Client;
use mainstay_messages::admin::Reference;
use mainstay_messages::process::{ExitStatus, OomVerdict};
use mainstay_messages::record::{ContainerPhase, ContainerSnapshot, Paused, SandboxSnapshot};
use mainstay_messages::supervisor::DiskUsage;
use mainstay_messages::{ContainerId, Timestamp};

use super::lifecycle::is_alive;
use crate::arguments::{ListContainersArguments, ListPodsArguments};
use crate::connection::Context;
use crate::failure::Result;
use crate::table::{Align, Table, shortened};
use crate::view::{ContainerView, PodView, addresses};
use crate::words::{age, bytes, span};

/// Characters of a command that a table shows.
const COMMAND_LENGTH_MAX: usize = 40;

/// Containers whose files are counted at the same time.
const SIZES_PARALLEL_MAX: usize = 8;
/// What is said of each container.
const CONTAINER_COLUMNS: [(&str, Align); 8] = [
    ("CONTAINER ID", Align::Left),
    ("NAME", Align::Left),
    ("POD", Align::Left),
    ("IMAGE", Align::Left),
    ("COMMAND", Align::Left),
    ("CREATED", Align::Left),
    ("ADDRESS", Align::Left),
    ("STATUS", Align::Left),
];

/// What containers have on the disk.
type Sizes = HashMap<ContainerId, DiskUsage>;

/// `mainstay ps`
pub(super) async fn containers(context: &Context, arguments: &ListContainersArguments) -> Result<ExitCode> {
    let client = context.daemon().await?;
    let (mut containers, pods) = futures::try_join!(client.list_containers(), client.list_sandboxes())?;
    if !arguments.all {
        containers.retain(|container| is_alive(container.record.phase));
    }
    // The newest first, as whoever looks has most likely just made it.
    containers.sort_by_key(|container| std::cmp::Reverse(container.record.created_at));
    let sizes = if arguments.size { sizes(&client, &containers).await } else { Sizes::new() };
    let text = || {
        if arguments.quiet {
            return containers.iter().map(|container| format!("{}\n", container.record.id)).collect();
        }
        match arguments.size {
            true => containers_with_sizes(&containers, &pods, &sizes, super::now()),
            false => containers_table(&containers, &pods, super::now()),
        }
    };
    let views = containers.iter().map(|container| {
        in_its_pod(container, &pods).with_disk_usage(sizes.get(&container.record.id).copied())
    });
    super::print(context.format(), text, &views.collect::<Vec<_>>())
}

fn in_its_pod<'a>(container: &'a ContainerSnapshot, pods: &[SandboxSnapshot]) -> ContainerView<'a> {
    let pod = pods.iter().find(|pod| pod.record.id == container.record.sandbox);
    ContainerView::from(container).in_pod(pod.and_then(|pod| pod.record.network.as_ref()))
}

/// What containers have on the disk. One that cannot be told, or is gone meanwhile, is not among them.
async fn sizes(client: &Client, containers: &[ContainerSnapshot]) -> Sizes {
    let ids = containers.iter().map(|container| container.record.id.clone());
    let asked = stream::iter(ids).map(|id| async move {
        let usage = client.disk_usage(Reference(id.to_string())).await;
        Some((id, usage.ok()?))
    });
    asked.buffer_unordered(SIZES_PARALLEL_MAX).filter_map(async |size| size).collect().await
}

/// `mainstay pods`
pub(super) async fn pods(context: &Context, arguments: &ListPodsArguments) -> Result<ExitCode> {
    let client = context.daemon().await?;
    let (mut pods, containers) = futures::try_join!(client.list_sandboxes(), client.list_containers())?;
    pods.sort_by_key(|pod| std::cmp::Reverse(pod.record.created_at));
    let text = || {
        if arguments.quiet {
            return pods.iter().map(|pod| format!("{}\n", pod.record.id)).collect();
        }
        pods_table(&pods, &containers, super::now())
    };
    super::print(context.format(), text, &pods.iter().map(PodView::from).collect::<Vec<_>>())
}

fn containers_table(containers: &[ContainerSnapshot], pods: &[SandboxSnapshot], now: Timestamp) -> String {
    let mut table = Table::new(CONTAINER_COLUMNS);
    containers.iter().for_each(|container| table.row(cells(container, pods, now)));
    table.to_string()
}

fn containers_with_sizes(
    containers: &[ContainerSnapshot],
    pods: &[SandboxSnapshot],
    sizes: &Sizes,
    now: Timestamp,
) -> String {
    let [id, name, pod, image, command, created, address, status] = CONTAINER_COLUMNS;
    let mut table =
        Table::new([id, name, pod, image, command, created, address, ("SIZE", Align::Right), status]);
    for container in containers {
        let size = sizes.get(&container.record.id).map_or_else(|| "?".to_owned(), |usage| bytes(usage.bytes));
        let [id, name, pod, image, command, created, address, status] = cells(container, pods, now);
        table.row([id, name, pod, image, command, created, address, size, status]);
    }
    table.to_string()
}

fn cells(container: &ContainerSnapshot, pods: &[SandboxSnapshot], now: Timestamp) -> [String; 8] {
    let record = &container.record;
    let pod = pods.iter().find(|pod| pod.record.id == record.sandbox);
    [
        record.id.short().to_owned(),
        record.name().to_string(),
        pod.map_or_else(|| record.sandbox.short().to_owned(), |pod| pod.record.name().to_string()),
        record.spec.rootfs.stands_on().map_or("-", |image| image.short()).to_owned(),
        shortened(&record.spec.process.command.join(" "), COMMAND_LENGTH_MAX),
        age(record.created_at, now),
        or_dash(addresses(pod.and_then(|pod| pod.record.network.as_ref()))),
        status(container, now),
    ]
}

/// A list for a cell of a table.
fn or_dash(list: Vec<String>) -> String {
    if list.is_empty() { "-".to_owned() } else { list.join(", ") }
}

/// What a container does, in a few words.
fn status(container: &ContainerSnapshot, now: Timestamp) -> String {
    let record = &container.record;
    let status = match (record.phase, &record.exit, record.started_at) {
        (ContainerPhase::Exited, Some(exit), _) => {
            let why = match (&exit.status, exit.oom) {
                (_, OomVerdict::Killed) => ", out of memory".into(),
                (ExitStatus::StartError { .. }, _) => ", could not be started".into(),
                (ExitStatus::Unknown { .. }, _) => ", nobody saw how".into(),
                (ExitStatus::Exited { .. } | ExitStatus::Signaled { .. }, _) => match &record.evicted {
                    Some(eviction) => Cow::from(format!(", evicted by {}", eviction.plugin)),
                    None => "".into(),
                },
            };
            format!("exited ({}{why}) {}", exit.code(), age(exit.at, now))
        }
        (ContainerPhase::Running, _, Some(started_at)) => {
            let paused = if record.paused == Paused::Yes { ", paused" } else { "" };
            format!("running for {}{paused}", span(now.nanos_since(started_at)))
        }
        _ => record.phase.to_string(),
    };
    match &container.activity {
        Some(activity) => format!("{status}, {} at step {}", activity.operation, activity.step),
        None => status,
    }
}

fn pods_table(pods: &[SandboxSnapshot], containers: &[ContainerSnapshot], now: Timestamp) -> String {
    let mut table = Table::new([
        ("POD ID", Align::Left),
        ("NAME", Align::Left),
        ("STATUS", Align::Left),
        ("RUNNING", Align::Right),
        ("CREATED", Align::Left),
        ("ADDRESS", Align::Left),
        ("PORTS", Align::Left),
        ("REASON", Align::Left),
    ]);
    for pod in pods {
        let record = &pod.record;
        let own = containers.iter().filter(|container| container.record.sandbox == record.id);
        let (running, all) = own.fold((0, 0), |(running, all), container| {
            (running + usize::from(is_alive(container.record.phase)), all + 1)
        });
        table.row([
            record.id.short().to_owned(),
            record.name().to_string(),
            record.phase.to_string(),
            format!("{running}/{all}"),
            age(record.created_at, now),
            or_dash(addresses(record.network.as_ref())),
            or_dash(record.spec.ports.iter().map(ToString::to_string).collect()),
            record.reason.clone().unwrap_or_default(),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use mainstay_messages::image::ImageId;
    use mainstay_messages::network::{NetworkDns, PodAddress, PodNetwork};
    use mainstay_messages::record::{ContainerRecord, SandboxRecord};
    use mainstay_messages::spec::{LayeredRoot, PortMapping, Protocol, Rootfs};
    use mainstay_messages::{ContainerId, ContainerSpec, Exit, SandboxId, SandboxSpec};

    use super::*;

    const MINUTE_NS: u64 = 60_000_000_000;

    fn container(id: u8, name: &str, change: impl FnOnce(&mut ContainerRecord)) -> ContainerSnapshot {
        let spec = ContainerSpec::new(name.parse().expect("a name"), ["sh", "-c", "sleep 1"]);
        let (id, pod) = (ContainerId::from_random([id; 16]), SandboxId::from_random([0xee; 16]));
        let mut record = ContainerRecord::intent(id, pod, spec, "/log".into(), Timestamp(0));
        change(&mut record);
        ContainerSnapshot { record, activity: None }
    }

    fn pod() -> SandboxSnapshot {
        let mut spec = SandboxSpec::new("web".parse().expect("a name"));
        spec.ports =
            vec![PortMapping { protocol: Protocol::Tcp, host_ip: None, host_port: 8080, pod_port: 80 }];
        let mut record = SandboxRecord::intent(SandboxId::from_random([0xee; 16]), spec, Timestamp(0));
        let ip = "10.89.0.2".parse().expect("an address");
        record.network = Some(PodNetwork {
            name: "builtin".into(),
            namespace: "/run/netns/web".into(),
            link: "eth0".into(),
            ips: vec![PodAddress { ip, prefix: 16, gateway: None }],
            mac: None,
            mtu: None,
            dns: NetworkDns::default(),
        });
        SandboxSnapshot { record, activity: None }
    }

    fn containers() -> [ContainerSnapshot; 3] {
        let oom = Exit {
            status: ExitStatus::Signaled { signal: 9 },
            at: Timestamp(4 * MINUTE_NS),
            oom: OomVerdict::Killed,
        };
        [
            container(0x11, "runs", |record| {
                record.phase = ContainerPhase::Running;
                record.started_at = Some(Timestamp(MINUTE_NS));
            }),
            container(0x22, "died", |record| {
                record.phase = ContainerPhase::Exited;
                record.exit = Some(oom);
                let image = ImageId(format!("sha256:{}", "ab".repeat(32)));
                record.spec.rootfs =
                    Rootfs::Layers(LayeredRoot { image, layers: vec!["/l".into()], volumes: Vec::new() });
            }),
            container(0x33, "waits", |record| record.phase = ContainerPhase::Created),
        ]
    }

    #[test]
    fn containers_as_people_see_them() {
        let shown = containers_table(&containers(), &[pod()], Timestamp(5 * MINUTE_NS));
        let expected = "\
CONTAINER ID   NAME    POD   IMAGE          COMMAND         CREATED         ADDRESS     STATUS
111111111111   runs    web   -              sh -c sleep 1   5 minutes ago   10.89.0.2   running for 4 minutes
222222222222   died    web   abababababab   sh -c sleep 1   5 minutes ago   10.89.0.2   exited (137, out of memory) 1 minute ago
333333333333   waits   web   -              sh -c sleep 1   5 minutes ago   10.89.0.2   created
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn sizes_stand_before_what_containers_do() {
        let all = containers();
        let usage = DiskUsage { bytes: 3 << 20, inodes: 7 };
        let sizes = Sizes::from([(all[0].record.id.clone(), usage)]);
        let shown = containers_with_sizes(&all[..2], &[pod()], &sizes, Timestamp(5 * MINUTE_NS));
        let expected = "\
CONTAINER ID   NAME   POD   IMAGE          COMMAND         CREATED         ADDRESS      SIZE   STATUS
111111111111   runs   web   -              sh -c sleep 1   5 minutes ago   10.89.0.2   3 MiB   running for 4 minutes
222222222222   died   web   abababababab   sh -c sleep 1   5 minutes ago   10.89.0.2       ?   exited (137, out of memory) 1 minute ago
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn pods_as_people_see_them() {
        let shown = pods_table(&[pod()], &containers(), Timestamp(2 * MINUTE_NS));
        let expected = "\
POD ID         NAME   STATUS     RUNNING   CREATED         ADDRESS     PORTS         REASON
eeeeeeeeeeee   web    starting       1/3   2 minutes ago   10.89.0.2   8080:80/tcp
";
        assert_eq!(shown, expected);
    }
}
