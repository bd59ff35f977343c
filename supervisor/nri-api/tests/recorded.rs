//! Frames that a plugin in Go, built with the library of the public API (v0.12.2), wrote to this project's runtime side: numbers of
//! fields, envelopes and frames are as others have them.

use mainstay_nri_api::mux::{HEADER_BYTES, Header, PLUGIN_CONNECTION, RUNTIME_CONNECTION};
use mainstay_nri_api::ttrpc::{Code, Request, Response};
use mainstay_nri_api::{
    ConfigureResponse, CreateContainerResponse, Empty, Event, EventMask, IOPrioClass, LinuxSchedulerPolicy,
    Message, RegisterPluginRequest, SynchronizeResponse, UpdateContainersRequest,
};

const REGISTER_PLUGIN: &str = "000000020000005a000000500000000101000a1c6e72692e706b672e6170692e7631616c706861312e52756e74\
     696d65120e5265676973746572506c7567696e1a1a0a0570726f6265120231301a0d302e302e302d756e6b6e6f776e20a9bf87d012";
const CONFIGURED: &str = "000000010000000f00000005000000010200120310ff7f";
const PART_TAKEN: &str = "000000010000000e0000000400000005020012021001";
const CREATE_CONTAINER: &str = "00000001000000f0000000e60000002d020012e3010ac40112090a02676f12037965731a070a052d2f746d70\
     22090a02474f12037965732a170a150a092f62696e2f747275651204747275652202080332540a140a062f6465762f78120163180120032a03\
     08a00312090a070a0508808080202202084d2a0408021005420a0a056e65742e781201314a0c0a046574683912040a026530520d080410fdff\
     ffffffffffffff013a150a0d524c494d49545f4e4f46494c45108010188008420f0a0d762e6578616d706c652f633d644a0273684a022d634a\
     0474727565121a0a056f7468657212110a0f120d120b08ffffffffffffffffff01";
const UPDATE_CONTAINERS: &str = "00000002000000550000004b0000000301000a1c6e72692e706b672e6170692e7631616c706861312e52756e\
     74696d651210557064617465436f6e7461696e6572731a190a170a0b756e736f6c69636974656412080a0612040a020805";

/// The same from a plugin built with the library as it was before 0.10, in a whole life with this project's daemon.
const OLD_REGISTERS: &str = "000000020000004b000000410000000101000a1c6e72692e706b672e6170692e7631616c706861312e52756e74696d6512\
     0e5265676973746572506c7567696e1a0b0a0570726f62651202313020e7d38bd012";
const OLD_CONFIGURED: &str = "000000010000000f00000005000000010200120310ff0f";
const OLD_KNOWS_NO_CALL: &str =
    "00000001000000240000001a0000000502000a18080c12146d6574686f642052756e506f6453616e64626f78";
const OLD_HEARD_A_CHANGE: &str = "000000010000000a00000000000000070200";

/// Bytes of the header of a ttrpc message: length, number of the request, type, flags.
const TTRPC_HEADER_BYTES: usize = 10;

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("digits");
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// The message of a frame, without its two headers, which are checked.
fn message(hex: &str, connection: u32) -> Vec<u8> {
    let frame = bytes(hex);
    let (header, payload) = frame.split_at(HEADER_BYTES);
    let header = Header::from_bytes(header.try_into().expect("eight bytes"));
    assert_eq!(header, Header { connection, length: payload.len() as u32 });
    assert_eq!(header.to_bytes(), frame[..HEADER_BYTES]);
    let length = u32::from_be_bytes(payload[..4].try_into().expect("four bytes"));
    assert_eq!(length as usize, payload.len() - TTRPC_HEADER_BYTES);
    payload[TTRPC_HEADER_BYTES..].to_vec()
}

/// Reads a message of which nothing may be unknown, and that is written as it was read.
fn read<M: Message>(bytes: &[u8]) -> M {
    let message = M::parse_from_bytes(bytes).expect("readable");
    assert_eq!(message.write_to_bytes().expect("writable"), bytes);
    assert!(message.special_fields().unknown_fields().iter().next().is_none());
    message
}

fn answer<M: Message>(hex: &str) -> M {
    read(&read::<Response>(&message(hex, PLUGIN_CONNECTION)).payload)
}

fn request<M: Message>(hex: &str, method: &str) -> M {
    let request: Request = read(&message(hex, RUNTIME_CONNECTION));
    assert_eq!((request.service.as_str(), request.method.as_str()), ("nri.pkg.api.v1alpha1.Runtime", method));
    read(&request.payload)
}

#[test]
fn a_plugin_registers() {
    let request: RegisterPluginRequest = request(REGISTER_PLUGIN, "RegisterPlugin");
    assert_eq!(request.plugin_name, "probe");
    assert_eq!(request.plugin_idx, "10");
    assert_eq!(request.nri_version, "0.0.0-unknown");
}

#[test]
fn a_plugin_asks_for_all_events_and_takes_a_part() {
    let configured: ConfigureResponse = answer(CONFIGURED);
    assert_eq!(EventMask::from_wire(configured.events), Ok(EventMask::ALL));
    let part: SynchronizeResponse = answer(PART_TAKEN);
    assert!(part.more && part.update.is_empty());
}

#[test]
fn a_plugin_changes_a_container() {
    let response: CreateContainerResponse = answer(CREATE_CONTAINER);
    let adjust = response.adjust.into_option().expect("an adjustment");
    assert_eq!(adjust.annotations["go"], "yes");
    assert_eq!(adjust.mounts[0].destination, "-/tmp");
    assert_eq!((adjust.env[0].key.as_str(), adjust.env[0].value.as_str()), ("GO", "yes"));
    assert_eq!(adjust.hooks.prestart[0].timeout.value, 3);
    assert_eq!((adjust.rlimits[0].hard, adjust.rlimits[0].soft), (2_048, 1_024));
    assert_eq!(adjust.cdi_devices[0].name, "v.example/c=d");
    assert_eq!(adjust.args, ["sh", "-c", "true"]);
    let linux = adjust.linux.into_option().expect("a part for Linux");
    assert_eq!((linux.devices[0].major, linux.devices[0].minor), (1, 3));
    assert_eq!(linux.devices[0].file_mode.value, 0o640);
    assert_eq!(linux.resources.memory.limit.value, 64 << 20);
    assert_eq!(linux.oom_score_adj.value, 77);
    assert_eq!(linux.io_priority.class.enum_value(), Ok(IOPrioClass::IOPRIO_CLASS_BE));
    assert_eq!(linux.sysctl["net.x"], "1");
    assert_eq!(linux.net_devices["eth9"].name, "e0");
    assert_eq!(linux.scheduler.policy.enum_value(), Ok(LinuxSchedulerPolicy::SCHED_BATCH));
    assert_eq!(linux.scheduler.nice, -3);
    assert_eq!(response.update[0].container_id, "other");
    assert_eq!(response.update[0].linux.resources.cpu.quota.value, -1);
}

#[test]
fn a_plugin_asks_for_an_update() {
    let request: UpdateContainersRequest = request(UPDATE_CONTAINERS, "UpdateContainers");
    assert_eq!(request.update[0].container_id, "unsolicited");
    assert_eq!(request.update[0].linux.resources.cpu.shares.value, 5);
}

/// It says no version, asks for the events that there were, does not know the calls that some of them have by now, and hears of
/// them as changes of state.
#[test]
fn a_plugin_from_before_0_10_is_understood() {
    let registers: RegisterPluginRequest = request(OLD_REGISTERS, "RegisterPlugin");
    assert_eq!((registers.plugin_name.as_str(), registers.nri_version.as_str()), ("probe", ""));
    let configured: ConfigureResponse = answer(OLD_CONFIGURED);
    let events = EventMask::from_wire(configured.events).expect("known events");
    assert!(events.contains(Event::RUN_POD_SANDBOX) && events.contains(Event::REMOVE_CONTAINER));
    for young in
        [Event::UPDATE_POD_SANDBOX, Event::POST_UPDATE_POD_SANDBOX, Event::VALIDATE_CONTAINER_ADJUSTMENT]
    {
        assert!(!events.contains(young), "{}", young.name());
    }
    let unknown: Response = read(&message(OLD_KNOWS_NO_CALL, PLUGIN_CONNECTION));
    let status = unknown.status.into_option().expect("an error");
    assert_eq!(status.code(), Code::UNIMPLEMENTED);
    assert_eq!(status.message, "method RunPodSandbox");
    let _heard: Empty = answer(OLD_HEARD_A_CHANGE);
}
