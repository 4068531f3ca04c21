//! A small seeded generator: equal seeds give equal traffic on every machine and in every release.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Not predictable by a peer: for session and test ids. From the kernel.
    pub fn from_kernel() -> Random {
        let mut seed = [0u8; 8];
        // SAFETY: the buffer is 8 bytes long; a read this short is never partial.
        let got = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
        assert_eq!(got, 8, "the kernel gives random bytes");
        Random(u64::from_ne_bytes(seed))
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1].
    pub fn unit(&mut self) -> f64 {
        ((self.word() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn reference_sequence() {
        // The first outputs for seed 1234567 of the authors' reference code.
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.word()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn exponential_has_mean_and_deviation_one() {
        let mut random = Random::new(7);
        let values: Vec<f64> = (0..100_000).map(|_| random.exponential()).collect();
        let mean = values.iter().sum::<f64>() / 1e5;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 1e5;
        assert!((mean - 1.0).abs() < 0.015, "{mean}");
        assert!((variance - 1.0).abs() < 0.04, "{variance}");
    }
}
