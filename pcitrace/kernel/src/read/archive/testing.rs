//! Writes small zip files for the tests of this and other readers.

use std::io::Write;

/// A deflated member each; sizes and CRC are right.
pub fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    write(members, false)
}

/// The same with sizes, offsets and the end in their zip64 form.
pub fn zip64(members: &[(&str, &[u8])]) -> Vec<u8> {
    write(members, true)
}

fn write(members: &[(&str, &[u8])], wide: bool) -> Vec<u8> {
    let mut file = Vec::new();
    let mut directory = Vec::new();
    for (name, data) in members {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(data).unwrap();
        let compressed = encoder.finish().unwrap();
        let numbers = [data.len() as u64, compressed.len() as u64, file.len() as u64];
        let field = |n: usize| if wide { u32::MAX } else { numbers[n] as u32 };
        let mut extra = Vec::new();
        if wide {
            extra.extend([9, 0, 1, 0, 7]); // a field of some other kind comes first
            extra.extend([1, 0, 24, 0]);
            numbers.iter().for_each(|n| extra.extend(n.to_le_bytes()));
        }
        let mut fields = vec![20, 0, 0, 0, 8, 0, 0, 0, 0, 0];
        fields.extend(libdeflater::crc32(data).to_le_bytes());
        fields.extend(field(1).to_le_bytes());
        fields.extend(field(0).to_le_bytes());
        fields.extend((name.len() as u16).to_le_bytes());
        file.extend(super::directory::LOCAL_HEADER);
        file.extend(&fields);
        file.extend([0, 0]);
        file.extend(name.as_bytes());
        file.extend(&compressed);
        directory.extend(super::directory::DIRECTORY_ENTRY);
        directory.extend([20, 0]);
        directory.extend(&fields);
        directory.extend((extra.len() as u16).to_le_bytes());
        directory.extend([0; 10]);
        directory.extend(field(2).to_le_bytes());
        directory.extend(name.as_bytes());
        directory.extend(&extra);
    }
    let start = file.len() as u64;
    let (count, size) = (members.len() as u64, directory.len() as u64);
    file.extend(&directory);
    if wide {
        let end = file.len() as u64;
        file.extend(super::directory::END64);
        file.extend(44u64.to_le_bytes());
        file.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        [count, count, size, start].iter().for_each(|n| file.extend(n.to_le_bytes()));
        file.extend(super::directory::END64_LOCATOR);
        file.extend([0; 4]);
        file.extend(end.to_le_bytes());
        file.extend([1, 0, 0, 0]);
    }
    let short = |n: u64| if wide { u32::MAX } else { n as u32 };
    file.extend(super::directory::END);
    file.extend([0; 4]);
    file.extend((short(count) as u16).to_le_bytes());
    file.extend((short(count) as u16).to_le_bytes());
    file.extend(short(size).to_le_bytes());
    file.extend(short(start).to_le_bytes());
    file.extend([0, 0]);
    file
}
