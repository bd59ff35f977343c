//! Layouts and archives in and out, with skopeo and umoci as makers and readers that are not ours.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use mainstay_images::{ImagesError, ImportOptions, Observer, Partials};
use mainstay_oci_image::{Descriptor, Digest};
use rstest::rstest;

use mainstay_images_testing::peer;

use crate::world::{Made, World, archive, gzip, image, is_root, read};

/// Writes an image as an OCI layout.
fn layout(made: &Made, at: &Path, annotations: &[(&str, &str)]) {
    fs::create_dir_all(at.join("blobs/sha256")).expect("made");
    for (digest, bytes) in &made.blobs {
        fs::write(at.join("blobs/sha256").join(digest.hex()), bytes).expect("written");
    }
    let annotations: BTreeMap<_, _> =
        annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let entry = Descriptor { annotations, ..made.manifest.clone() };
    let index = serde_json::json!({ "schemaVersion": 2, "manifests": [entry] });
    fs::write(at.join("index.json"), index.to_string()).expect("written");
    fs::write(at.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("written");
}

fn run(program: &Path, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?} {arguments:?}: {text}");
}

fn sample() -> Made {
    image(&[&[("etc/a", "1"), ("etc/gone", "1")], &[("etc/.wh.gone", ""), ("bin/b", "2")]])
}

#[test]
fn a_layout_comes_in_goes_out_as_an_archive_and_comes_in_again() {
    if !is_root() {
        return;
    }
    let (world, other) = (World::new(), World::new());
    let made = sample();
    layout(&made, &world.path("layout"), &[("io.containerd.image.name", "example.org/a/b:v1")]);
    let imported = world
        .images
        .import_layout(&world.path("layout"), &ImportOptions::default(), &Observer::none())
        .expect("imported");
    assert_eq!(imported[0].name, "example.org/a/b:v1");
    let mut bytes = Vec::new();
    world.images.export(&["example.org/a/b:v1"], &mut bytes).expect("exported");
    for bytes in [bytes.clone(), gzip(&bytes)] {
        let again =
            other.images.import(&bytes[..], &ImportOptions::default(), &Observer::none()).expect("imported");
        assert_eq!(
            (again[0].name.as_str(), &again[0].manifest.digest),
            ("example.org/a/b:v1", &made.manifest.digest)
        );
    }
    let named = ImportOptions { name: Some("mine".parse().expect("a name")), ..ImportOptions::default() };
    let again = other.images.import(&bytes[..], &named, &Observer::none()).expect("imported");
    assert_eq!(again[0].name, "docker.io/library/mine:latest");
    let plan = other.images.lease("c", "mine").expect("leased");
    assert_eq!(read(plan.lower[0].join("bin/b")), "2");
}

#[test]
fn skopeo_and_umoci_read_what_we_export_and_we_read_what_skopeo_writes() {
    let (Some(skopeo), Some(umoci)) = (peer::find("skopeo", "skopeo"), peer::find("umoci", "umoci")) else {
        return;
    };
    if !is_root() {
        return;
    }
    let world = World::new();
    let made = sample();
    let text = |name: &str| world.path(name).to_str().expect("text").to_owned();
    layout(&made, &world.path("layout"), &[("org.opencontainers.image.ref.name", "v1")]);
    let copy = |from: &str, to: &str| run(&skopeo, &["--insecure-policy", "copy", "-q", from, to]);
    let layout_text = format!("oci:{}", text("layout"));
    copy(&layout_text, &format!("docker-archive:{}:example.org/d:v2", text("docker.tar")));
    copy(&layout_text, &format!("oci-archive:{}:example.org/o:v3", text("oci.tar")));
    for (file, name) in [("docker.tar", "example.org/d:v2"), ("oci.tar", "example.org/o:v3")] {
        let file = File::open(world.path(file)).expect("there");
        let imported =
            world.images.import(file, &ImportOptions::default(), &Observer::none()).expect("imported");
        assert_eq!(imported[0].name, name);
        assert_eq!(imported[0].layers[1].diff_id, world.images.find(name).expect("listed").layers[1].diff_id);
        let plan = world.images.lease(name, name).expect("leased");
        assert_eq!(read(plan.lower[0].join("bin/b")), "2");
    }
    assert_eq!(world.names("layers").len(), 2, "the layers of both are the same");

    world
        .images
        .export(&["example.org/d:v2"], File::create(world.path("out.tar")).expect("made"))
        .expect("exported");
    copy(&format!("oci-archive:{}", text("out.tar")), &format!("oci:{}:back", text("back")));
    copy(&format!("docker-archive:{}", text("out.tar")), &format!("oci:{}:docker", text("back")));
    run(&umoci, &["raw", "unpack", "--image", &format!("{}:back", text("back")), &text("rootfs")]);
    let rootfs = world.path("rootfs");
    assert_eq!((read(rootfs.join("bin/b")), read(rootfs.join("etc/a"))), ("2".to_owned(), "1".to_owned()));
    assert!(!rootfs.join("etc/gone").exists());
}

/// A Docker archive as old Dockers wrote it: layers in directories, one of them a link to another, the manifest last.
#[test]
fn an_old_docker_archive_with_links_comes_in() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let layer = archive(&[("f", "1")]);
    let diff_id = Digest::of(&layer);
    let config = serde_json::json!({
        "architecture": "amd64", "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": [diff_id, diff_id] },
    })
    .to_string();
    let config_name = format!("{}.json", Digest::of(config.as_bytes()).hex());
    let manifest = serde_json::json!([{
        "Config": config_name, "RepoTags": ["old:1", "old:2"], "Layers": ["aa/layer.tar", "bb/layer.tar"],
    }])
    .to_string();
    let mut builder = tar::Builder::new(Vec::new());
    let mut add = |name: &str, bytes: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, bytes).expect("written");
    };
    add("aa/VERSION", b"1.0");
    add("aa/layer.tar", &layer);
    add(&config_name, config.as_bytes());
    let mut link = tar::Header::new_ustar();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_size(0);
    builder.append_link(&mut link, "bb/layer.tar", "../aa/layer.tar").expect("written");
    let mut header = tar::Header::new_ustar();
    header.set_size(manifest.len() as u64);
    header.set_mode(0o644);
    builder.append_data(&mut header, "manifest.json", manifest.as_bytes()).expect("written");
    let bytes = builder.into_inner().expect("written");
    let imported =
        world.images.import(&bytes[..], &ImportOptions::default(), &Observer::none()).expect("imported");
    let names: Vec<&str> = imported.iter().map(|image| image.name.as_str()).collect();
    assert_eq!(names, ["docker.io/library/old:1", "docker.io/library/old:2"]);
    assert_eq!(imported[0].config.digest, Digest::of(config.as_bytes()));
    assert_eq!(world.names("trash"), Vec::<String>::new());
}

fn hostile(files: &[(&str, &str)]) -> Vec<u8> {
    archive(files)
}

#[rstest]
#[case(&[], "neither index.json")]
#[case(&[("index.json", r#"{"schemaVersion":2}"#)], "no image")]
#[case(&[("index.json", "[[[[")], "cannot be used")]
#[case(&[("manifest.json", "[]")], "no image")]
#[case(&[("manifest.json", r#"[{"Config":"../../etc/passwd","Layers":[]}]"#)], "not in the archive")]
#[case(&[("manifest.json", r#"[{"Config":"a.json","Layers":[]}]"#), ("a.json", "{")], "cannot be used")]
#[case(&[("manifest.json", r#"[{"Config":"a.json","Layers":["x"]}]"#), ("a.json", "{}")], "not in the archive")]
#[case(&[("manifest.json", r#"[{"Config":"a.json","Layers":["a.json"]}]"#), ("a.json", "{}")], "cannot be used")]
#[case(&[("blobs/sha256/0000000000000000000000000000000000000000000000000000000000000000", "x"), ("index.json", "{}")], "nothing of them was kept")]
#[case(&[("index.json", r#"{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000","size":3}]}"#)], "is not in it")]
fn what_is_no_image_is_refused_in_a_sentence_and_leaves_nothing(
    #[case] files: &[(&str, &str)],
    #[case] expected: &str,
) {
    let world = World::new();
    let error = world
        .images
        .import(&hostile(files)[..], &ImportOptions::default(), &Observer::none())
        .expect_err("no image");
    assert!(error.to_string().contains(expected), "{error}");
    assert!(world.images.list().is_empty());
    world.images.collect(Partials::All).expect("collected");
    for directory in ["blobs/sha256", "partial", "layers", "unpacking", "trash"] {
        assert_eq!(world.names(directory), Vec::<String>::new(), "{directory}");
    }
}

#[test]
fn a_layout_with_links_and_fifos_is_read_no_further_than_itself() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let made = sample();
    let directory = world.path("layout");
    layout(&made, &directory, &[]);
    let blob = directory.join("blobs/sha256").join(made.layers[0].digest.hex());
    fs::rename(&blob, world.path("outside")).expect("moved");
    std::os::unix::fs::symlink(world.path("outside"), &blob).expect("linked");
    let import = || world.images.import_layout(&directory, &ImportOptions::default(), &Observer::none());
    let error = import().expect_err("a link");
    assert!(matches!(error, ImagesError::File { .. }), "{error}");
    fs::remove_file(&blob).expect("removed");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &blob,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("made");
    let error = import().expect_err("a FIFO");
    assert!(error.to_string().contains("no regular file"), "{error}");
    fs::remove_file(&blob).expect("removed");
    fs::rename(world.path("outside"), &blob).expect("moved");
    let imported = import().expect("imported");
    assert_eq!(imported[0].name, made.manifest.digest.to_string(), "without a name it goes by its digest");
}
