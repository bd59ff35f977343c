//! The set of events that a plugin asks for.
//!
//! Owns: the mask in the answer to Configure, and the names of events for people. Never: knows the calls that carry
//! them.

use std::fmt;

use protobuf::Enum;

use crate::Event;

/// The events that a plugin asked for. Invariant: it has no bit without an event, and is never empty if read from the
/// wire, where nothing means all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventMask(u32);

/// A mask has bits for which there is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event mask {mask:#x} has the unknown bits {unknown:#x}; the known ones are {:#x}", EventMask::ALL.0)]
pub struct UnknownEvents {
    /// What was said.
    pub mask: i32,
    /// The part of it that nobody knows.
    pub unknown: u32,
}

/// Each event with its name for people, in the order of their numbers.
const NAMES: [(Event, &str); 14] = [
    (Event::RUN_POD_SANDBOX, "RunPodSandbox"),
    (Event::STOP_POD_SANDBOX, "StopPodSandbox"),
    (Event::REMOVE_POD_SANDBOX, "RemovePodSandbox"),
    (Event::CREATE_CONTAINER, "CreateContainer"),
    (Event::POST_CREATE_CONTAINER, "PostCreateContainer"),
    (Event::START_CONTAINER, "StartContainer"),
    (Event::POST_START_CONTAINER, "PostStartContainer"),
    (Event::UPDATE_CONTAINER, "UpdateContainer"),
    (Event::POST_UPDATE_CONTAINER, "PostUpdateContainer"),
    (Event::STOP_CONTAINER, "StopContainer"),
    (Event::REMOVE_CONTAINER, "RemoveContainer"),
    (Event::UPDATE_POD_SANDBOX, "UpdatePodSandbox"),
    (Event::POST_UPDATE_POD_SANDBOX, "PostUpdatePodSandbox"),
    (Event::VALIDATE_CONTAINER_ADJUSTMENT, "ValidateContainerAdjustment"),
];

impl EventMask {
    /// No event.
    pub const NONE: EventMask = EventMask(0);
    /// Every event.
    pub const ALL: EventMask = EventMask((1 << NAMES.len()) - 1);

    /// Reads the answer to Configure: 0 stands for all.
    pub fn from_wire(mask: i32) -> Result<EventMask, UnknownEvents> {
        let bits = mask.cast_unsigned();
        match bits & !Self::ALL.0 {
            0 if bits == 0 => Ok(Self::ALL),
            0 => Ok(Self(bits)),
            unknown => Err(UnknownEvents { mask, unknown }),
        }
    }

    /// As it is written in the answer to Configure. None cannot be written.
    pub fn to_wire(self) -> Option<i32> {
        (self != Self::NONE).then_some(self.0.cast_signed())
    }

    /// With this event as well.
    #[must_use]
    pub fn with(self, event: Event) -> EventMask {
        Self(self.0 | bit(event))
    }

    /// Without this event.
    #[must_use]
    pub fn without(self, event: Event) -> EventMask {
        Self(self.0 & !bit(event))
    }

    /// Whether it has this event.
    pub fn contains(self, event: Event) -> bool {
        self.0 & bit(event) != 0
    }

    /// Its events, in the order of their numbers.
    pub fn events(self) -> impl Iterator<Item = Event> {
        NAMES.into_iter().map(|(event, _)| event).filter(move |event| self.contains(*event))
    }
}

impl FromIterator<Event> for EventMask {
    fn from_iter<T: IntoIterator<Item = Event>>(events: T) -> Self {
        events.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Display for EventMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.events().map(Event::name).collect();
        f.write_str(&names.join(","))
    }
}

impl Event {
    /// Its name, which is that of its call.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(event, _)| *event == self).map_or("no event", |(_, name)| name)
    }
}

/// The bit of an event; nothing for the two ends of the enumeration, which are no events.
fn bit(event: Event) -> u32 {
    if NAMES.iter().any(|(known, _)| *known == event) { 1 << (event.value() - 1) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_has_the_bit_below_its_number() {
        assert_eq!(EventMask::NONE.with(Event::RUN_POD_SANDBOX).to_wire(), Some(1));
        assert_eq!(EventMask::NONE.with(Event::REMOVE_CONTAINER).to_wire(), Some(1 << 10));
        assert_eq!(EventMask::NONE.with(Event::VALIDATE_CONTAINER_ADJUSTMENT).to_wire(), Some(1 << 13));
        assert_eq!(EventMask::ALL.to_wire(), Some(0x3fff));
        assert_eq!(EventMask::ALL.events().count() as i32, Event::LAST.value() - 1);
        assert!(EventMask::ALL.events().map(|event| event.value()).eq(1..Event::LAST.value()));
    }

    #[test]
    fn nothing_on_the_wire_stands_for_all_and_an_unknown_bit_is_refused() {
        assert_eq!(EventMask::from_wire(0), Ok(EventMask::ALL));
        assert_eq!(EventMask::from_wire(8), Ok(EventMask::NONE.with(Event::CREATE_CONTAINER)));
        let unknown = EventMask::from_wire(1 << 14 | 1).expect_err("event 15 is the end");
        assert_eq!(
            unknown.to_string(),
            "the event mask 0x4001 has the unknown bits 0x4000; the known ones are 0x3fff"
        );
        assert!(EventMask::from_wire(-1).is_err());
    }

    #[test]
    fn the_ends_of_the_enumeration_are_no_events() {
        assert_eq!(EventMask::NONE.with(Event::UNKNOWN).with(Event::LAST), EventMask::NONE);
        assert!(!EventMask::ALL.contains(Event::LAST));
        assert_eq!(EventMask::NONE.to_wire(), None);
        let mask: EventMask = [Event::STOP_CONTAINER, Event::RUN_POD_SANDBOX].into_iter().collect();
        assert_eq!(mask.to_string(), "RunPodSandbox,StopContainer");
        assert_eq!(mask.without(Event::STOP_CONTAINER).to_string(), "RunPodSandbox");
    }
}
