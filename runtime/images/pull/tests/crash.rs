//! Killed in the middle of a pull: the next one needs nothing again but the bytes that were in flight (P5).

mod world;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use world::content::Content;
use world::stub::{Ending, Stub};
use world::{World, finish, image, layer, until};

/// Where the process that is killed pulls to, and what.
const DIR: &str = "MAINSTAY_TEST_PULL_DIR";
const NAME: &str = "MAINSTAY_TEST_PULL_NAME";

/// The process that is killed. It ends with this value.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        // It is our own child, and not waited for yet.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the victim does; nothing where there is none.
#[actix::test]
async fn victim() {
    let (Some(dir), Ok(name)) = (std::env::var_os(DIR), std::env::var(NAME)) else { return };
    let _ = World::at(Path::new(&dir)).pull(&name).image().await;
}

/// Whether a file of this length is somewhere below a directory.
fn has_file_of(dir: &Path, length: u64) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    entries.flatten().any(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => has_file_of(&entry.path(), length),
        Ok(metadata) => metadata.len() == length,
        Err(_) => false,
    })
}

#[actix::test]
async fn a_pull_that_was_killed_goes_on_where_it_was() {
    let mut content = Content::default();
    let first = content.blob(layer("first", 100_000, 1));
    let second = content.blob(layer("second", 300_000, 2));
    image(&mut content, "one", &[&first, &second]);
    let stalls = second.digest.to_string();
    let stub = Stub::start(move |request| {
        let reply = content.serve(request);
        let stalls = request.path.ends_with(&stalls) && request.nth == 0;
        if stalls { reply.ending(Ending::Stall(200_000)) } else { reply }
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    let images = dir.path().join("images");
    let victim = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "victim"])
        .env(DIR, &images)
        .env(NAME, stub.name("x:one"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let victim = Victim(victim);
    until("the second layer is here in part", || has_file_of(&images, 200_000)).await;
    until("the first layer is here", || has_file_of(&images, first.size)).await;
    drop(victim);

    let world = World::at(&images);
    assert_eq!(world.listed(), Vec::<String>::new(), "nothing half-pulled is listed");
    finish("it is pulled", world.pull(&stub.name("x:one")).image()).await.expect("the image");
    let requests = |digest: String| {
        let seen = stub.seen().into_iter().filter(move |request| request.path.ends_with(&digest));
        seen.map(|request| request.header("range").map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(requests(first.digest.to_string()), [None]);
    assert_eq!(requests(second.digest.to_string()), [None, Some("bytes=200000-".to_owned())]);
}
