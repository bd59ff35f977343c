//! Writes a small corpus for each target that reads a text or an archive; those that make their layers themselves need none.

use std::fs;
use std::path::Path;

const SHA: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn main() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (target, seeds) in [
        ("documents", documents()),
        ("reference", texts(&["busybox", "a.b:5000/c/d:e", &format!("x/y@{SHA}"), "docker.io/library/a:b"])),
        ("hosts_toml", texts(&HOSTS)),
        ("docker_config", texts(&CONFIGS)),
        ("challenge", texts(&CHALLENGES)),
        ("archive", archives()),
    ] {
        let directory = corpus.join(target);
        fs::create_dir_all(&directory).expect("a directory");
        for (number, seed) in seeds.iter().enumerate() {
            fs::write(directory.join(format!("seed-{number}")), seed).expect("a file");
        }
    }
}

const HOSTS: [&str; 3] = [
    "server = \"https://docker.io\"\n[host.\"http://a.example:5000\"]\ncapabilities = [\"pull\", \"resolve\"]\nskip_verify = true\n",
    "[host.\"https://m.example/v2/x\"]\noverride_path = true\nca = [\"a.pem\"]\nclient = [[\"c.pem\", \"k.pem\"]]\ndial_timeout = \"3s\"\n",
    "[host.\"https://m.example\"]\n[host.\"https://m.example\".header]\nx-one = \"1\"\nx-more = [\"2\", \"3\"]\n",
];
const CONFIGS: [&str; 3] = [
    r#"{"auths":{"registry.example/team":{"auth":"dXNlcjpwYXNz"},"https://index.docker.io/v1/":{"username":"u","password":"p"}}}"#,
    r#"{"auths":{"registry.example":{"identitytoken":"t"}},"credsStore":"pass","credHelpers":{"registry.example":"x"}}"#,
    r#"{"auths":{"http://registry.example:5000/v2/":{"registrytoken":"t"}}}"#,
];
const CHALLENGES: [&str; 3] = [
    r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull""#,
    r#"Basic realm="a \"b\"", Bearer realm=x , scope = "y""#,
    "Negotiate abc==, basic",
];

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn documents() -> Vec<Vec<u8>> {
    let descriptor = |kind: &str| serde_json::json!({"mediaType": kind, "digest": SHA, "size": 5});
    let (oci, docker) = ("application/vnd.oci.image.", "application/vnd.docker.");
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": format!("{oci}manifest.v1+json"),
        "config": descriptor(&format!("{oci}config.v1+json")),
        "layers": [descriptor(&format!("{oci}layer.v1.tar+gzip"))],
        "annotations": {"a": "b"},
    });
    let index = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": format!("{docker}distribution.manifest.list.v2+json"),
        "manifests": [{
            "mediaType": format!("{docker}distribution.manifest.v2+json"), "digest": SHA, "size": 5,
            "platform": {"os": "linux", "architecture": "arm64", "variant": "v8", "os.features": ["x"]},
        }],
    });
    let config = serde_json::json!({
        "architecture": "amd64", "os": "linux",
        "config": {
            "User": "a:b", "Env": ["A=B"], "Entrypoint": ["x"], "Cmd": "y", "Volumes": {"/v": {}},
            "WorkingDir": "/w", "ExposedPorts": {"80/tcp": {}}, "Labels": {"a": "b"}, "StopSignal": "TERM",
        },
        "rootfs": {"type": "layers", "diff_ids": [SHA]},
        "history": [{"created_by": "x", "empty_layer": true}],
    });
    [manifest, index, config].iter().map(|document| document.to_string().into_bytes()).collect()
}

fn archives() -> Vec<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(5);
    header.set_mode(0o644);
    builder.append_data(&mut header, "x".repeat(150), &b"hello"[..]).expect("in memory");
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    builder.append_link(&mut header, "link", "x").expect("in memory");
    let long = builder.into_inner().expect("in memory");
    let mut builder = tar::Builder::new(Vec::new());
    let records = [("SCHILY.xattr.user.a", &b"b"[..]), ("path", b"other"), ("mtime", b"1.5")];
    builder.append_pax_extensions(records).expect("in memory");
    let mut header = tar::Header::new_ustar();
    header.set_size(0);
    header.set_cksum();
    builder.append_data(&mut header, "name", &b""[..]).expect("in memory");
    let records = [
        ("GNU.sparse.major", &b"1"[..]),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.name", b"holes"),
        ("GNU.sparse.realsize", b"4096"),
    ];
    builder.append_pax_extensions(records).expect("in memory");
    let mut map = b"1\n10\n4\n".to_vec();
    map.resize(512, 0);
    map.extend_from_slice(b"data");
    let mut header = tar::Header::new_ustar();
    header.set_size(map.len() as u64);
    builder.append_data(&mut header, "holes", &map[..]).expect("in memory");
    vec![long, builder.into_inner().expect("in memory")]
}
