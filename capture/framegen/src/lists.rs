//! Lists as people write them: frame sizes on the command line, times in a file.

use std::sync::Arc;

/// `64,512,1500`, `64:1500:1` (first, last, step) or `1000+-3` (997, 1000, 1003); lists may mix them.
pub fn parse_sizes(text: &str) -> Result<Vec<u16>, String> {
    let number =
        |part: &str| part.trim().parse::<u16>().map_err(|_| format!("`{part}` in `{text}` is no number of bytes"));
    let mut sizes = Vec::new();
    for item in text.split(',') {
        if let Some((centre, distance)) = item.split_once("+-").or_else(|| item.split_once('±')) {
            let (centre, distance) = (number(centre)?, number(distance)?);
            let low = centre.checked_sub(distance).ok_or_else(|| format!("`{item}` goes below 0"))?;
            let high = centre.checked_add(distance).ok_or_else(|| format!("`{item}` is too large"))?;
            sizes.extend([low, centre, high]);
        } else if item.contains(':') {
            let parts: Vec<u16> = item.split(':').map(number).collect::<Result<_, _>>()?;
            let (first, last, step) = match parts[..] {
                [first, last] => (first, last, 1),
                [first, last, step] => (first, last, step),
                _ => return Err(format!("`{item}`: a sweep is first:last:step")),
            };
            if step == 0 || last < first {
                return Err(format!("`{item}`: first to last in steps of at least 1"));
            }
            sizes.extend((first..=last).step_by(usize::from(step)));
        } else {
            sizes.push(number(item)?);
        }
    }
    Ok(sizes)
}

/// Times in µs, one a line, as ns. Empty lines and `#` comments are passed over.
pub fn parse_times(text: &str) -> Result<Arc<[f64]>, String> {
    let mut times: Vec<f64> = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.split('#').next().unwrap_or_default().trim();
        if content.is_empty() {
            continue;
        }
        let time: f64 = content.parse().map_err(|_| format!("line {line}: `{content}` is no time in µs"))?;
        let least = times.last().map_or(0.0, |ns| ns / 1e3);
        if !time.is_finite() || time < least {
            return Err(format!(
                "line {line}: {content} comes before {least}; times are from the start and do not fall"
            ));
        }
        times.push(time * 1e3);
    }
    if times.is_empty() { Err("no times in it".into()) } else { Ok(times.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_sizes("64,512,1500"), Ok(vec![64, 512, 1500]));
        assert_eq!(parse_sizes("64:70:3"), Ok(vec![64, 67, 70]));
        assert_eq!(parse_sizes("64:66"), Ok(vec![64, 65, 66]));
        assert_eq!(parse_sizes("1000+-3,40"), Ok(vec![997, 1000, 1003, 40]));
        for wrong in ["", "x", "64:", "70:64:1", "64:70:0", "1:2:3:4", "2+-3", "70000", "-1"] {
            assert!(parse_sizes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times() {
        assert_eq!(parse_times("0\n# two\n12.5\n\n12.5 # again\n"), Ok(vec![0.0, 12_500.0, 12_500.0].into()));
        for wrong in ["", "x", "1\n0.5", "nan", "inf", "-1"] {
            assert!(parse_times(wrong).is_err(), "{wrong}");
        }
    }
}
