//! Any bytes from a link: an error, or a message with just that encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rsock_core::stream::{MAX_MESSAGE, Message};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = Message::decode(bytes) {
        let mut buffer = [0; MAX_MESSAGE];
        let len = message.encode(&mut buffer);
        assert_eq!(&buffer[..len], &bytes[..len]);
    }
});
