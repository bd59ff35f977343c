use super::*;

#[test]
fn what_follows_the_end_is_read_and_dropped() {
    let mut archive = Archive::new(&[0u8; 10_240][..]);
    assert_eq!(archive.next().expect("an end"), None);
    assert_eq!(archive.number(), 0);
}
