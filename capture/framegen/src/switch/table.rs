//! Which address is behind which port: learned from source addresses, forgotten when it has been quiet.
//!
//! Ref: IEEE Std 802.1D-2004, clauses 7.8 and 7.9.

use super::Ps;
use crate::frame::Mac;
use std::collections::HashMap;

/// A flood of source addresses must not take all memory.
const MAX_ADDRESSES: usize = 65_536;

#[derive(Debug, Default)]
pub struct Table {
    known: HashMap<Mac, (usize, Ps)>,
}

impl Table {
    /// Learn a source address; true if that is news.
    pub fn learn(&mut self, mac: Mac, port: usize, now: Ps) -> bool {
        if mac.is_multicast() || (self.known.len() >= MAX_ADDRESSES && !self.known.contains_key(&mac)) {
            return false;
        }
        self.known.insert(mac, (port, now)).is_none_or(|(before, _)| before != port)
    }

    /// The port of an address. `Err`: it was known and has aged.
    pub fn find(&mut self, mac: Mac, now: Ps, ageing: Ps) -> Result<Option<usize>, usize> {
        let Some(&(port, seen)) = self.known.get(&mac) else {
            return Ok(None);
        };
        if now - seen <= ageing {
            return Ok(Some(port));
        }
        self.known.remove(&mac);
        Err(port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_move_and_age() {
        let (mut table, host) = (Table::default(), Mac([2; 6]));
        assert_eq!(table.find(host, 0, 10), Ok(None));
        assert!(table.learn(host, 1, 0) && !table.learn(host, 1, 5) && table.learn(host, 2, 6));
        assert_eq!(table.find(host, 16, 10), Ok(Some(2)));
        assert_eq!(table.find(host, 17, 10), Err(2));
        assert_eq!(table.find(host, 17, 10), Ok(None));
        assert!(!table.learn(Mac::BROADCAST, 1, 0));
    }
}
