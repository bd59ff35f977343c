//! How soon a plugin that was given up may come again: each time later, so that one that always fails costs little.
//!
//! Owns: the pauses. Never: knows the time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::name::PluginName;

/// The first pause of a plugin that was given up, in milliseconds; it doubles up to [`PAUSE_MAX_MS`].
pub const PAUSE_MIN_MS: u64 = 500;
/// The longest pause, in milliseconds.
pub const PAUSE_MAX_MS: u64 = 60_000;
/// A plugin that was not given up for so long begins with the first pause again, in milliseconds.
pub const PAUSE_FORGIVEN_MS: u64 = 600_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pauses(BTreeMap<PluginName, Pause>);

#[derive(Debug)]
struct Pause {
    times: u32,
    since: Instant,
}

impl Pauses {
    /// A plugin was given up now.
    pub fn begin(&mut self, plugin: PluginName, now: Instant) {
        self.forgive(now);
        let pause = self.0.entry(plugin).or_insert(Pause { times: 0, since: now });
        (pause.times, pause.since) = (pause.times.saturating_add(1), now);
    }

    /// How long it still has to wait, if at all.
    pub fn left(&mut self, plugin: &PluginName, now: Instant) -> Option<Duration> {
        self.forgive(now);
        let pause = self.0.get(plugin)?;
        let doubled = PAUSE_MIN_MS.saturating_mul(1 << (pause.times - 1).min(16)).min(PAUSE_MAX_MS);
        Duration::from_millis(doubled)
            .checked_sub(now.duration_since(pause.since))
            .filter(|left| !left.is_zero())
    }

    fn forgive(&mut self, now: Instant) {
        let old = Duration::from_millis(PAUSE_FORGIVEN_MS);
        self.0.retain(|_, pause| now.duration_since(pause.since) < old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_ends_and_is_forgiven() {
        let mut pauses = Pauses::default();
        let plugin: PluginName = "10-a".parse().expect("a good name");
        let began = Instant::now();
        let after = |ms| began + Duration::from_millis(ms);
        assert_eq!(pauses.left(&plugin, began), None);
        pauses.begin(plugin.clone(), began);
        assert_eq!(pauses.left(&plugin, after(100)), Some(Duration::from_millis(400)));
        assert_eq!(pauses.left(&plugin, after(500)), None);
        pauses.begin(plugin.clone(), after(500));
        assert_eq!(pauses.left(&plugin, after(500)), Some(Duration::from_millis(1_000)));
        assert_eq!(pauses.left(&plugin, after(500 + PAUSE_FORGIVEN_MS)), None);
        pauses.begin(plugin.clone(), after(500 + PAUSE_FORGIVEN_MS));
        assert_eq!(pauses.left(&plugin, after(500 + PAUSE_FORGIVEN_MS)), Some(Duration::from_millis(500)));
    }
}
