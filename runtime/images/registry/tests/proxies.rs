//! Proxies of the environment. The environment is that of a process, so the test runs itself again with another one.

mod world;

use std::process::Command;

use mainstay_registry::settings::Proxies;
use mainstay_registry::{Problem, Settings};
use world::content::Content;
use world::stub::{Reply, Stub};
use world::{finish, open, settings};

/// Set in the process that runs with the proxy.
const INNER: &str = "MAINSTAY_TEST_PROXIES_INNER";

#[tokio::test(flavor = "multi_thread")]
async fn proxies_of_the_environment_are_used_but_not_for_this_machine() {
    if std::env::var_os(INNER).is_some() {
        return inner().await;
    }
    let mut content = Content::default();
    content.image("latest");
    let proxy = Stub::start(move |request| match request.method.as_str() {
        "CONNECT" => Reply::new(403, ""),
        _ => content.serve(request),
    })
    .await;
    let address = format!("http://user:hunter2@{}", proxy.address);
    let test = std::thread::current().name().expect("the harness names tests").to_owned();
    let program = std::env::current_exe().expect("this program");
    let child = tokio::task::spawn_blocking(move || {
        Command::new(program)
            .args(["--exact", &test, "--nocapture"])
            .env(INNER, "1")
            .env("HTTP_PROXY", &address)
            .env("HTTPS_PROXY", &address)
            .env("NO_PROXY", "direct.invalid")
            .env_remove("ALL_PROXY")
            .env_remove("REQUEST_METHOD")
            .output()
            .expect("it runs again")
    });
    let output = finish("the inner test", child).await.expect("it runs");
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
    let seen: Vec<_> = proxy.seen().into_iter().map(|r| (r.method.clone(), r.path.clone(), r)).collect();
    let paths: Vec<_> = seen.iter().map(|(method, path, _)| format!("{method} {path}")).collect();
    let expected = [
        "HEAD http://proxied.invalid/v2/a/manifests/latest".to_owned(),
        "CONNECT secure.invalid:443".to_owned(),
    ];
    assert_eq!(paths, expected);
    let basic = Some("Basic dXNlcjpodW50ZXIy");
    assert!(seen.iter().all(|(_, _, request)| request.header("proxy-authorization") == basic));
}

async fn inner() {
    let plain = ["proxied.invalid", "direct.invalid"].map(str::to_owned).to_vec();
    let once = Settings {
        proxies: Proxies::FromEnvironment,
        plain_http: plain,
        retry: mainstay_registry::retry::RetryPolicy { tries: 1, ..settings().retry },
        ..settings()
    };
    let resolve = async |name: &str| {
        let (repository, _) = open(once.clone(), name, None).await;
        finish("the answer", repository.resolve()).await
    };
    resolve("proxied.invalid/a").await.expect("through the proxy");
    let error = resolve("secure.invalid/a").await.expect_err("the proxy connects nobody");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    let error = resolve("direct.invalid/a").await.expect_err("nobody is there");
    assert!(matches!(*error.problem, Problem::UnknownHost { .. } | Problem::Connect { .. }), "{error}");
    let mut content = Content::default();
    content.image("latest");
    let here = Stub::start(move |request| content.serve(request)).await;
    resolve(&here.name("a")).await.expect("this machine needs no proxy");
}
