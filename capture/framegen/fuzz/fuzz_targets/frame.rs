#![no_main]

use framegen::control::{read_log_piece, read_reply, read_request, read_sync_reply};
use framegen::frame::{parse, stamp};
use libfuzzer_sys::fuzz_target;

// The CRC keeps a fuzzer out: it is also put right, so that what is behind it is reached.
fuzz_target!(|bytes: &[u8]| {
    let mut mended = bytes.to_vec();
    if mended.len() >= 50 {
        stamp(&mut mended, 0);
    }
    for bytes in [bytes, &mended] {
        if let Ok(frame) = parse(bytes) {
            let _ = (read_request(&frame), read_reply(&frame), read_sync_reply(&frame), read_log_piece(&frame));
        }
    }
});
