//! The order of steps, whatever fails.

use std::cell::{Cell, RefCell};

use super::*;

/// Three steps that write down what happens to them. `b` cannot be undone before `c`.
static BUILD: Saga<Site, Site> = Saga {
    name: "build",
    steps: &[
        Step {
            name: "a",
            act: |site| Box::pin(site.say("+a")),
            undo: Some(|site| Box::pin(site.say("-a"))),
            undone_after: &[],
        },
        Step {
            name: "b",
            act: |site| Box::pin(site.say("+b")),
            undo: Some(|site| Box::pin(site.say("-b"))),
            undone_after: &["c"],
        },
        Step {
            name: "c",
            act: |site| Box::pin(site.say("+c")),
            undo: Some(|site| Box::pin(site.say("-c"))),
            undone_after: &[],
        },
        Step { name: "d", act: |site| Box::pin(site.say("+d")), undo: None, undone_after: &[] },
    ],
};

#[derive(Default)]
struct Site {
    said: RefCell<Vec<&'static str>>,
    failing: Vec<&'static str>,
    panicking: Cell<Option<&'static str>>,
}

impl AsRef<Site> for Site {
    fn as_ref(&self) -> &Site {
        self
    }
}

impl Progress for Site {
    fn at(&self, _step: &'static str) {}
}

impl Site {
    fn where_fail(failing: &[&'static str]) -> Self {
        Self { failing: failing.to_vec(), ..Self::default() }
    }

    async fn say(&self, word: &'static str) -> Result<()> {
        self.said.borrow_mut().push(word);
        assert_ne!(self.panicking.get(), Some(word), "a panic was asked for");
        match self.failing.contains(&word) {
            true => Err(Error::unavailable(word, "it fails")),
            false => Ok(()),
        }
    }
}

fn names_of(result: Result<()>) -> String {
    result.expect_err("it fails").to_string()
}

#[tokio::test]
async fn steps_are_taken_in_their_order() {
    let site = Site::default();
    let (done, report) = BUILD.run(&site).await;
    done.expect("all work");
    assert_eq!(*site.said.borrow(), ["+a", "+b", "+c", "+d"]);
    assert_eq!(report.taken.len(), 4);
    assert!(report.taken.iter().all(|step| step.way == Way::Act && step.trouble.is_none()));
}

/// The step that failed may have come half way, so it is undone too.
#[tokio::test]
async fn a_step_that_fails_is_undone_with_those_before_it() {
    let site = Site::where_fail(&["+c"]);
    let (done, _) = BUILD.run(&site).await;
    assert!(names_of(done).contains("+c"));
    assert_eq!(*site.said.borrow(), ["+a", "+b", "+c", "-c", "-b", "-a"]);
}

/// The first undo that failed once kept all the others from being tried, and so a mount that was busy kept an address and a
/// name for ever.
#[tokio::test]
async fn an_undo_that_fails_stops_only_those_that_depend_on_it() {
    let site = Site::where_fail(&["-c"]);
    let (undone, report) = BUILD.undo_all(&site).await;
    assert!(names_of(undone).contains("-c"));
    assert_eq!(*site.said.borrow(), ["-c", "-a"], "b waits for c, a does not");
    let text = report.fact().to_string();
    assert!(text.contains("undo b 0.000 ms failed (not tried: c has to be undone first)"), "{text}");
}

#[tokio::test]
async fn the_error_is_that_of_the_step_and_not_of_the_undo() {
    let site = Site::where_fail(&["+b", "-a"]);
    let (done, report) = BUILD.run(&site).await;
    assert!(names_of(done).contains("+b"));
    assert!(report.fact().to_string().contains("-a is not available"));
}

#[tokio::test]
async fn a_panic_is_an_error_of_its_step() {
    let site = Site::default();
    site.panicking.set(Some("+b"));
    let (done, _) = BUILD.run(&site).await;
    assert!(names_of(done).contains("step b of build"));
    assert_eq!(*site.said.borrow(), ["+a", "+b", "-b", "-a"]);
}

#[cfg(feature = "faults")]
#[test]
fn every_way_of_every_step_has_its_points() {
    let points: Vec<String> = BUILD.points().collect();
    assert_eq!(points.len(), 4 * 2 + 3 * 2, "{points:?}");
    assert_eq!(points[..4], ["build.a.before", "build.a.after", "build.a.undo.before", "build.a.undo.after"]);
}
