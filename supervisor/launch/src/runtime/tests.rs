use std::path::PathBuf;

use super::*;

/// A root or a bundle below `/dev/shm` was hidden by the file system that was mounted there for it.
#[test]
fn the_place_of_a_root_hides_neither_it_nor_its_bundle() {
    let spec = Spec::default();
    let chosen = |root: RootMount, directory: &str| {
        let (directory, cgroup) = (Path::new(directory), Path::new("/c"));
        open_place(ContainerBundle { spec: &spec, directory, root: &root, cgroup }).expect("one is free")
    };
    let overlay = |upper: &str| RootMount::Overlay {
        lower: vec![PathBuf::from("/var/lower")],
        upper: PathBuf::from(upper),
        work: PathBuf::from("/var/work"),
    };
    let first = chosen(overlay("/var/upper"), "/run/bundle");
    let below = first.join("a/b");
    let below_text = below.to_str().expect("text");
    assert_ne!(chosen(overlay(below_text), "/run/bundle"), first);
    assert_ne!(chosen(overlay("/var/upper"), below_text), first);
    // All of the host's files as a layer lie above each place, and none of them is hidden by what is mounted there.
    let host =
        RootMount::Overlay { lower: vec!["/".into()], upper: "/var/upper".into(), work: "/var/work".into() };
    assert_eq!(chosen(host, "/run/bundle"), first);
    assert_ne!(chosen(RootMount::Bind(below.clone()), "/run/bundle"), first);
    assert_eq!(chosen(RootMount::Bind(PathBuf::from("rootfs")), "/run/bundle"), first);
}
