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
    pcitrace_kernel_fuzz::read_file(&zip(&members));
});

/// Stored, not compressed.
fn zip(members: &BTreeMap<&[u8], &[u8]>) -> Vec<u8> {
    let mut file = Vec::new();
    let mut directory = Vec::new();
    for (name, content) in members {
        let offset = file.len() as u32;
        let mut fields = vec![0; 10];
        fields.extend(crc32(content).to_le_bytes());
        fields.extend((content.len() as u32).to_le_bytes());
        fields.extend((content.len() as u32).to_le_bytes());
        fields.extend((name.len() as u16).to_le_bytes());
        fields.extend([0; 2]);
        file.extend(b"PK\x03\x04");
        file.extend(&fields);
        file.extend(*name);
        file.extend(*content);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&fields);
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(*name);
    }
    let start = file.len() as u32;
    file.extend(&directory);
    file.extend(b"PK\x05\x06\x00\x00\x00\x00");
    file.extend((members.len() as u16).to_le_bytes());
    file.extend((members.len() as u16).to_le_bytes());
    file.extend((directory.len() as u32).to_le_bytes());
    file.extend(start.to_le_bytes());
    file.extend([0; 2]);
    file
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ (0xedb8_8320 * (crc & 1)))
    })
}
