//! CRC-32 of IEEE 802.3, for headers and control payloads.

const TABLES: [[u32; 256]; 4] = tables();

const fn tables() -> [[u32; 256]; 4] {
    let mut t = [[0u32; 256]; 4];
    let mut i = 0;
    while i < 256 {
        let mut value = i as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ 0xEDB8_8320 } else { value >> 1 };
            bit += 1;
        }
        t[0][i] = value;
        i += 1;
    }
    let mut k = 1;
    while k < 4 {
        let mut i = 0;
        while i < 256 {
            t[k][i] = (t[k - 1][i] >> 8) ^ t[0][(t[k - 1][i] & 0xFF) as usize];
            i += 1;
        }
        k += 1;
    }
    t
}

/// CRC-32 of `bytes`, four at a time: it is computed between a frame's send time and its departure.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        crc ^= u32::from_le_bytes(word.try_into().expect("4 bytes"));
        crc = TABLES[3][(crc & 0xFF) as usize]
            ^ TABLES[2][(crc >> 8 & 0xFF) as usize]
            ^ TABLES[1][(crc >> 16 & 0xFF) as usize]
            ^ TABLES[0][(crc >> 24) as usize];
    }
    for &byte in words.remainder() {
        crc = (crc >> 8) ^ TABLES[0][((crc ^ u32::from(byte)) & 0xFF) as usize];
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::crc32;

    #[test]
    fn check_value_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(b""), 0);
    }
}
