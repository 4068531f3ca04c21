//! What this program refuses to do unless it is told explicitly, and why.

use crate::frame::Mac;
use crate::netlink::{Link, default_route_interfaces, links};
use std::io;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    pub default_route: bool,
    pub multicast: bool,
    pub broadcast: bool,
    pub unknown: bool,
    pub pause: bool,
}

/// The interface of that name, to look at.
pub fn named(name: &str) -> io::Result<Result<Link, String>> {
    let links = links()?;
    Ok(links.iter().find(|link| link.name == name).cloned().ok_or_else(|| {
        let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
        format!("no interface {name}; there are {}", names.join(", "))
    }))
}

/// The interface to send from, if it may be used.
pub fn interface(name: &str, allowed: Allowed) -> io::Result<Result<Link, String>> {
    let link = match named(name)? {
        Ok(link) => link,
        Err(absent) => return Ok(Err(absent)),
    };
    if link.mac.is_none() {
        return Ok(Err(format!("{name} is not an Ethernet interface")));
    }
    if !link.up {
        return Ok(Err(format!("{name} is down; `ip link set {name} up`")));
    }
    if link.mtu < 1500 {
        return Ok(Err(format!("{name} has an MTU of {}; control frames need 1500", link.mtu)));
    }
    if !allowed.default_route && default_route_interfaces(&links()?)?.contains(&link.index) {
        return Ok(Err(format!(
            "{name} carries the default route: test frames would share it with everything else; \
             use another interface or --allow-default-route"
        )));
    }
    Ok(Ok(link))
}

/// Whether frames may go to this address.
pub fn destination(mac: Mac, own: Mac, allowed: Allowed) -> Result<(), String> {
    if mac == own {
        return Err(format!("{mac} is this interface itself"));
    }
    if mac == Mac([0; 6]) {
        return Err(format!("{mac} is nobody's address"));
    }
    if mac == Mac::BROADCAST {
        let text = "goes to every host of the network; --allow-broadcast if that is meant";
        return if allowed.broadcast { Ok(()) } else { Err(format!("{mac} {text}")) };
    }
    if mac.is_multicast() && !allowed.multicast {
        return Err(format!("{mac} is a multicast address; --allow-multicast if that is meant"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations() {
        let own = Mac([2, 0, 0, 0, 0, 1]);
        let (peer, group) = (Mac([2, 0, 0, 0, 0, 2]), Mac([3, 0, 0, 0, 0, 2]));
        let none = Allowed::default();
        assert!(destination(peer, own, none).is_ok());
        assert!(destination(own, own, none).is_err());
        assert!(destination(Mac([0; 6]), own, none).is_err());
        assert!(destination(group, own, none).is_err());
        assert!(destination(group, own, Allowed { multicast: true, ..none }).is_ok());
        assert!(destination(Mac::BROADCAST, own, Allowed { multicast: true, ..none }).is_err());
        assert!(destination(Mac::BROADCAST, own, Allowed { broadcast: true, ..none }).is_ok());
    }

    #[test]
    fn loopback_and_nothing() {
        let refused = |name| interface(name, Allowed::default()).expect("netlink answers").expect_err("refused");
        assert!(refused("lo").contains("not an Ethernet interface"));
        assert!(refused("none0").contains("no interface none0"));
    }
}
