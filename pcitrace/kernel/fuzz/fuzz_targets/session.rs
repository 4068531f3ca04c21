//! Zip files whose directory and CRCs are right, so that what is in them is reached: the input is member names and
//! contents, each ended by a byte 255.
#![no_main]

use std::collections::BTreeMap;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut fields = bytes.split(|&byte| byte == 255);
    let mut members = BTreeMap::new();
    while let (Some(name), Some(content)) = (fields.next(), fields.next()) {
        members.insert(name, content);
    }
    pcitrace_kernel_fuzz::files::read_file(&pcitrace_kernel_fuzz::files::zip(&members));
});
