//! What came of a seed, and how much happened in it.

/// What came of one seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// All that happened, as a number.
    pub hash: u64,
    /// The promise that was broken.
    pub fault: Option<String>,
    /// The end of the trace.
    pub lines: Vec<String>,
    /// How much happened.
    pub sum: Sum,
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub steps: u64,
    pub calls: u64,
    pub crashes: u64,
    pub reboots: u64,
    pub restarted_actors: u64,
    pub dead_shims: u64,
    pub parked: u64,
    pub unclaimed: u64,
    pub refused: u64,
    pub failed_commits: u64,
    pub ends: u64,
    pub unknown_ends: u64,
}

impl Sum {
    /// Adds what happened in another seed.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.numbers().into_iter().zip(other.clone().numbers()) {
            *mine += *theirs;
        }
    }

    /// A simulation in which nothing goes wrong proves nothing.
    pub fn invariant_all_kinds_of_trouble_happened(mut self) {
        let words = format!("{self:?}");
        assert!(
            self.numbers().iter().all(|number| **number > 0),
            "some kind of trouble never happened: {words}"
        );
    }

    fn numbers(&mut self) -> [&mut u64; 12] {
        let Self {
            steps,
            calls,
            crashes,
            reboots,
            restarted_actors,
            dead_shims,
            parked,
            unclaimed,
            refused,
            failed_commits,
            ends,
            unknown_ends,
        } = self;
        [
            steps,
            calls,
            crashes,
            reboots,
            restarted_actors,
            dead_shims,
            parked,
            unclaimed,
            refused,
            failed_commits,
            ends,
            unknown_ends,
        ]
    }
}
