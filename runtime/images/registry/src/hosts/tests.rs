//! Files as containerd's documentation has them, and files that are wrong.

use std::path::Path;

use rstest::rstest;

use super::*;

fn parse(text: &str, registry: &str) -> Vec<Endpoint> {
    file::parse(text, Path::new("/etc/certs.d/x"), registry).expect("a good file")
}

fn shown(endpoints: &[Endpoint]) -> Vec<String> {
    endpoints.iter().map(|e| format!("{:?} {}{}", e.scheme, e.authority, e.prefix)).collect()
}

#[test]
fn mirrors_come_in_the_order_of_the_file_and_the_registry_last() {
    let text = r#"
        server = "https://docker.io"
        [host."https://z.example"]
          capabilities = ["pull"]
        [host."http://a.example:5000"]
          capabilities = ["pull", "resolve", "push"]
          skip_verify = true
          dial_timeout = "3s"
          [host."http://a.example:5000".header]
            x-one = "1"
            x-more = ["2", "3"]
        [host."https://m.example/v2/project"]
          override_path = true
          ca = "ca.pem"
          client = [["/abs/c.pem", "k.pem"], ["d.pem", ""]]
        [host."https://n.example/base"]
    "#;
    let endpoints = parse(text, "docker.io");
    let expected = [
        "Https z.example/v2",
        "Http a.example:5000/v2",
        "Https m.example/v2/project",
        "Https n.example/base/v2",
        "Https registry-1.docker.io/v2",
    ];
    assert_eq!(shown(&endpoints), expected);
    assert_eq!(endpoints[0].capabilities, Capabilities { resolve: false, pull: true });
    assert_eq!(endpoints[1].dial_timeout, Some(Duration::from_secs(3)));
    let headers = [("x-one", "1"), ("x-more", "2"), ("x-more", "3")];
    assert_eq!(endpoints[1].headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(endpoints[2].tls.ca, [PathBuf::from("/etc/certs.d/x/ca.pem")]);
    let client = endpoints[2].tls.client.clone().expect("a client certificate");
    assert_eq!(client.certificate, PathBuf::from("/abs/c.pem"));
    assert_eq!(client.key, Some(PathBuf::from("/etc/certs.d/x/k.pem")));
    let namespaces: Vec<_> = endpoints.iter().map(|e| e.namespace.as_deref()).collect();
    assert_eq!(
        namespaces,
        [Some("docker.io"), Some("docker.io"), Some("docker.io"), Some("docker.io"), None]
    );
}

#[rstest]
#[case("", "r.example", "Https r.example/v2")]
#[case("server = \"r.example\"", "r.example", "Https r.example/v2")]
#[case("server = \"http://r.example:80\"", "r.example", "Http r.example/v2")]
#[case("server = \"https://r.example/v2/\"", "r.example", "Https r.example/v2")]
#[case("", "localhost:5000", "HttpsOrHttp localhost:5000/v2")]
#[case("skip_verify = false", "localhost:5000", "Https localhost:5000/v2")]
#[case("ca = \"x\"", "127.0.0.1:5000", "Https 127.0.0.1:5000/v2")]
#[case("", "localhost", "Https localhost/v2")]
#[case("", "[::1]:5000", "HttpsOrHttp [::1]:5000/v2")]
fn the_registry_itself(#[case] text: &str, #[case] registry: &str, #[case] expected: &str) {
    assert_eq!(shown(&parse(text, registry)), [expected]);
}

#[rstest]
#[case("server = \"ftp://r.example\"", "server is \"…\"; it should be an http or https URL")]
#[case("[host.\"https://user:hunter2@m.example\"]", "it should be an http or https URL without user")]
#[case("capabilities = [\"fly\"]", "server.capabilities is \"fly\"; it should be pull, resolve")]
#[case("ca = 1", "server.ca is \"integer\"; it should be a path or a list of paths")]
#[case("dial_timeout = \"soon\"", "dial_timeout is \"soon\"; it should be a duration")]
#[case("client = [[\"a\",\"b\",\"c\"]]", "server.client")]
#[case("[header]\n\"a b\" = \"hunter2\"", "a name and a text that HTTP allows")]
#[case("skip_verify = 1", "cannot be understood")]
#[case("[host", "cannot be understood")]
fn a_wrong_value_is_named(#[case] text: &str, #[case] expected: &str) {
    let error = file::parse(text, Path::new("/d"), "r.example").expect_err("a wrong file").to_string();
    assert!(error.contains("/d/hosts.toml") && error.contains(expected), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[rstest]
#[case("localhost", true)]
#[case("localhost:5000", true)]
#[case("127.0.0.2:5000", true)]
#[case("[::1]:5000", true)]
#[case("[::1]", true)]
#[case("localhost.example", false)]
#[case("10.0.0.1:5000", false)]
fn this_machine(#[case] host: &str, #[case] expected: bool) {
    assert_eq!(is_this_machine(host), expected);
}

#[tokio::test]
async fn the_directory_of_a_host_goes_before_the_default_one() {
    let root = tempfile::tempdir().expect("a directory");
    let write = |dir: &str, name: &str, text: &str| {
        std::fs::create_dir_all(root.path().join(dir)).expect("made");
        std::fs::write(root.path().join(dir).join(name), text).expect("written");
    };
    write("_default", "hosts.toml", "server = \"http://default.example\"");
    write("r.example_5000_", "hosts.toml", "server = \"http://with-port.example\"");
    write("r.example", "hosts.toml", "server = \"http://without.example\"");
    write("certs.example", "a.crt", "x");
    write("certs.example", "b.cert", "x");
    write("certs.example", "b.key", "x");
    write("lonely.example", "b.cert", "x");
    let settings = Settings { hosts_dirs: vec![root.path().to_owned()], ..Settings::default() };
    for (host, expected) in [
        ("r.example:5000", "Http with-port.example/v2"),
        ("r.example", "Http without.example/v2"),
        ("other.example", "Http default.example/v2"),
        ("certs.example", "Https certs.example/v2"),
    ] {
        let endpoints = find(&settings, host).await.expect("good files");
        assert_eq!(shown(&endpoints), [expected], "{host}");
    }
    let certs = &find(&settings, "certs.example").await.expect("good files")[0].tls;
    assert!(certs.ca.len() == 1 && certs.client.is_some());
    let error = find(&settings, "lonely.example").await.expect_err("no key");
    assert!(error.to_string().contains("b.key beside it"), "{error}");
    let none =
        Settings { hosts_dirs: Vec::new(), plain_http: vec!["p.example".to_owned()], ..Settings::default() };
    assert_eq!(shown(&find(&none, "p.example").await.expect("none")), ["Http p.example/v2"]);
    assert_eq!(shown(&find(&none, "docker.io").await.expect("none")), ["Https registry-1.docker.io/v2"]);
}
