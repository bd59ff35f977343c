//! Faults of the field, as decisions.
