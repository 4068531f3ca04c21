//! What many values say: moments, percentiles, a histogram and its width.

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distribution {
    pub n: usize,
    pub min: f64,
    pub mean: f64,
    pub max: f64,
    /// Standard deviation (N - 1); null for one value.
    pub sigma: Option<f64>,
    pub p1: f64,
    pub p10: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    /// Full width of the histogram's highest peak at half its height; null where there are too few values.
    pub fwhm: Option<f64>,
    pub histogram: Histogram,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Histogram {
    pub start: f64,
    pub width: f64,
    pub counts: Vec<u64>,
    pub below: u64,
    pub above: u64,
}

const MAX_BINS: f64 = 400.0;
/// Clocks resolve a nanosecond; values are in µs.
const LEAST_WIDTH: f64 = 0.001;
const LEAST_FOR_WIDTH: usize = 100;

/// None without values.
pub fn distribution(mut values: Vec<f64>) -> Option<Distribution> {
    values.sort_by(f64::total_cmp);
    let (&min, &max) = (values.first()?, values.last()?);
    let n = values.len();
    let mean = values.iter().sum::<f64>() / n as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let histogram = histogram(&values);
    Some(Distribution {
        n,
        min,
        mean,
        max,
        sigma: (n > 1).then(|| (squares / (n - 1) as f64).sqrt()),
        p1: quantile(&values, 0.01),
        p10: quantile(&values, 0.1),
        p50: quantile(&values, 0.5),
        p90: quantile(&values, 0.9),
        p99: quantile(&values, 0.99),
        p999: quantile(&values, 0.999),
        fwhm: if n < LEAST_FOR_WIDTH { None } else { fwhm(&histogram) },
        histogram,
    })
}

/// Linear interpolation between order statistics, as numpy does by default.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let (low, fraction) = (at.floor() as usize, at.fract());
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + (sorted[high] - sorted[low]) * fraction
}

/// Bins by the rule of Freedman and Diaconis, a round width, over the central 99.8 % of the values.
fn histogram(sorted: &[f64]) -> Histogram {
    let (low, high) = (quantile(sorted, 0.001), quantile(sorted, 0.999));
    let quartiles = quantile(sorted, 0.75) - quantile(sorted, 0.25);
    let wanted = 2.0 * quartiles / (sorted.len() as f64).cbrt();
    let width = round_up(wanted.max((high - low) / MAX_BINS).max(LEAST_WIDTH));
    let start = (low / width).floor() * width;
    let bins = ((high - start) / width).floor() as usize + 1;
    let mut counts = vec![0u64; bins];
    let (mut below, mut above) = (0, 0);
    for value in sorted {
        let bin = ((value - start) / width).floor();
        if bin < 0.0 {
            below += 1;
        } else if bin as usize >= bins {
            above += 1;
        } else {
            counts[bin as usize] += 1;
        }
    }
    Histogram { start, width, counts, below, above }
}

/// The next 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * decade >= value * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * decade
}

/// From the highest bin outwards to where the counts fall through half of it, interpolated between bin centres.
fn fwhm(histogram: &Histogram) -> Option<f64> {
    let counts = &histogram.counts;
    let (peak, &height) = counts.iter().enumerate().max_by_key(|&(i, &count)| (count, std::cmp::Reverse(i)))?;
    let half = height as f64 / 2.0;
    let count_at = |bin: isize| usize::try_from(bin).ok().and_then(|bin| counts.get(bin)).map_or(0.0, |&c| c as f64);
    let edge = |step: isize| {
        let mut bin = peak as isize;
        while count_at(bin + step) > half {
            bin += step;
        }
        let (inside, outside) = (count_at(bin), count_at(bin + step));
        (bin - peak as isize).unsigned_abs() as f64 + (inside - half) / (inside - outside)
    };
    Some((edge(-1) + edge(1)) * histogram.width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn by_hand() {
        let d = distribution(vec![4.0, 1.0, 3.0, 2.0]).expect("values");
        assert_eq!((d.n, d.min, d.mean, d.max, d.p50), (4, 1.0, 2.5, 4.0, 2.5));
        assert!((d.sigma.expect("two or more") - (5.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(d.fwhm, None);
        assert_eq!(distribution(vec![]), None);
        let one = distribution(vec![7.0]).expect("a value");
        assert_eq!((one.sigma, one.p999), (None, 7.0));
    }

    #[test]
    fn every_value_is_in_the_histogram() {
        let mut random = Random::new(5);
        for n in [1usize, 2, 100, 5000] {
            let values: Vec<f64> = (0..n).map(|_| random.exponential() * 20.0 - 3.0).collect();
            let h = distribution(values).expect("values").histogram;
            assert_eq!(h.counts.iter().sum::<u64>() + h.below + h.above, n as u64);
            assert!(h.counts.len() <= MAX_BINS as usize + 2);
        }
        let same = distribution(vec![12.5; 1000]).expect("values");
        assert_eq!(same.histogram.counts.iter().sum::<u64>(), 1000);
    }

    #[test]
    fn width_of_a_normal_distribution() {
        let mut random = Random::new(6);
        let normal =
            |random: &mut Random| (-2.0 * random.unit().ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos();
        let values: Vec<f64> = (0..200_000).map(|_| 100.0 + 2.0 * normal(&mut random)).collect();
        let fwhm = distribution(values).expect("values").fwhm.expect("enough");
        assert!((fwhm / (2.0 * 2.354_82) - 1.0).abs() < 0.06, "{fwhm}");
    }
}
