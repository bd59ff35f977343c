//! What people type, and what becomes of it.

use mainstay_messages::Error;

use crate::world::Test;

#[actix::test]
async fn objects_are_found_by_id_name_and_beginning() {
    let test = Test::new();
    let pod = test.run("shop").await.expect("ready");
    let other = test.run("bank").await.expect("ready");
    let web = test.create(&pod, "web").await.expect("created");
    let its_web = test.create(&other, "web").await.expect("created");
    let api = test.create(&pod, "api").await.expect("created");
    let directory = &test.core.directory;
    assert_eq!(directory.resolve_sandbox("shop"), Ok(pod.clone()));
    assert_eq!(directory.resolve_sandbox(pod.as_str()), Ok(pod.clone()));
    assert_eq!(directory.resolve_sandbox(pod.short()), Ok(pod.clone()));
    assert_eq!(directory.resolve_container("api"), Ok(api.clone()));
    assert_eq!(directory.resolve_container("shop/web"), Ok(web.clone()));
    assert_eq!(directory.resolve_container("bank/web"), Ok(its_web));
    assert!(matches!(directory.resolve_container("web"), Err(Error::Ambiguous { .. })));
    assert_eq!(directory.resolve_container(web.short()), Ok(web));
    let error = directory.resolve_container("apy").expect_err("unknown");
    assert!(error.to_string().contains("did you mean \"api\""), "{error}");
    for hopeless in ["", "x", "../..", "a b c d e", "nothing-like-it"] {
        let error = directory.resolve_sandbox(hopeless).expect_err("unknown");
        assert!(matches!(error, Error::NotFound { nearest: None, .. }), "{error:?}");
    }
    assert!(matches!(directory.resolve_exec("abc"), Err(Error::NotFound { .. })));
}

/// A reader that watches an object sees its last value, and then that it is gone.
#[actix::test]
async fn whoever_watches_sees_the_last_value_and_then_the_end() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    let mut watch = test.core.directory.watch_container(&web).expect("it is listed");
    test.remove_pod(&pod).await.expect("removed");
    while watch.changed().await.is_ok() {}
    assert_eq!(watch.borrow().record.exit.as_ref().expect("an exit").code(), 137);
}
