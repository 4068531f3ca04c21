//! Channel names that repeat: analysers allow them (`NC`, `NC`), but who asks for one by its name has to get that one.

use std::collections::{HashMap, HashSet};

/// Notes on names, at most; the last one says how many more there would be.
const MOST_NOTES: usize = 8;

/// Bytes of the names of all nets: those of a small file are long where long scopes are nested deep.
const MOST_BYTES: usize = 128 << 20;

/// Adds to the bytes of all names so far; what is wrong where they are too many.
pub fn count_bytes(so_far: &mut usize, name: &str) -> Result<(), String> {
    *so_far += name.len();
    if *so_far <= MOST_BYTES {
        return Ok(());
    }
    Err(format!("the names of its nets, with their scopes, take more than {} MiB", MOST_BYTES >> 20))
}

/// Numbers the names that repeat, `NC@1`, `NC@2`, in the order of the channels, and says so. None of them keeps its name:
/// of two channels called `FRAME#` nobody can tell which one is meant.
pub fn number_repeated<'a>(names: impl IntoIterator<Item = &'a mut String>) -> Vec<String> {
    let names: Vec<&mut String> = names.into_iter().collect();
    let mut seen = HashSet::with_capacity(names.len());
    let repeated: HashSet<String> =
        names.iter().filter(|name| !seen.insert(name.as_str())).map(|name| name.to_string()).collect();
    if repeated.is_empty() {
        return Vec::new();
    }
    let taken: HashSet<String> = seen.into_iter().map(str::to_owned).collect();
    let mut numbers: HashMap<&str, u64> = repeated.iter().map(|name| (name.as_str(), 0)).collect();
    let mut order = Vec::new();
    for name in names {
        let Some((called, number)) =
            repeated.get(name.as_str()).and_then(|called| Some((called, numbers.get_mut(called.as_str())?)))
        else {
            continue;
        };
        if *number == 0 {
            order.push(called);
        }
        loop {
            *number += 1;
            *name = format!("{called}@{number}");
            if !taken.contains(name.as_str()) {
                break;
            }
        }
    }
    let more = order.len().saturating_sub(MOST_NOTES);
    let note = |called: &&String| {
        format!("several channels are called {called:?}: here they are numbered, {:?} and so on", format!("{called}@1"))
    };
    let mut notes: Vec<String> = order.iter().take(MOST_NOTES).map(note).collect();
    if more > 0 {
        notes.push(format!("{more} more names of channels repeat"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_names_are_numbered_in_order() {
        let mut names: Vec<String> = ["CLK", "NC", "NC@1", "NC", "D"].map(str::to_owned).into();
        let notes = number_repeated(&mut names);
        assert_eq!(names, ["CLK", "NC@2", "NC@1", "NC@3", "D"]);
        assert_eq!(notes.len(), 1);
        assert!(notes[0].contains("\"NC\""));
        assert!(number_repeated(&mut names).is_empty());
    }

    #[test]
    fn a_million_names_take_a_moment_and_few_notes() {
        let mut names: Vec<String> = (0..300_000).flat_map(|n| [format!("n{n}"), format!("n{n}")]).collect();
        assert_eq!(number_repeated(&mut names).len(), MOST_NOTES + 1);
        assert_eq!((names[0].as_str(), names[599_999].as_str()), ("n0@1", "n299999@2"));
    }
}
