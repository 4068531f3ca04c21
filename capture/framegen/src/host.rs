//! This host: the interface used, its clock, and what the operating system says about disturbances.

use crate::clock::Clock;
use crate::control::Identity;
use crate::frame::Framing;
use crate::frame::Mac;
use crate::key::Key;
use crate::netlink::{Counters, Link, links};
use crate::udp;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Host {
    pub interface: u32,
    pub name: String,
    pub mac: Mac,
    pub mtu: u32,
    pub clock: Clock,
    /// CPUs for the thread that sends and the thread that receives.
    pub cpus: Vec<usize>,
    /// SCHED_FIFO priority of both.
    pub priority: Option<i32>,
    pub key: Key,
    /// Of the interface, where it has one.
    pub ip: Option<Ipv4Addr>,
    /// Holds the port of UDP frames, so that the kernel refuses none; nobody reads it.
    pub port: Option<Arc<UdpSocket>>,
    /// Address of the interface where test frames come in, if it is another one.
    pub sink: Option<Mac>,
}

impl Host {
    /// The host as frames of this kind address it.
    pub fn speaking(&self, framing: Framing) -> io::Result<Host> {
        if framing != Framing::Udp {
            return Ok(self.clone());
        }
        let ip = self.ip.ok_or_else(|| {
            io::Error::other(format!(
                "{} has no IPv4 address; `ip address add 10.0.0.1/24 dev {}`",
                self.name, self.name
            ))
        })?;
        let port = match &self.port {
            Some(port) => port.clone(),
            None => Arc::new(udp::socket(self.interface, udp::PORT)?),
        };
        Ok(Host { mac: udp::address(ip), port: Some(port), ..self.clone() })
    }

    pub fn identity(&self) -> Identity {
        Identity {
            program: env!("CARGO_PKG_VERSION").into(),
            host: kernel_word("hostname"),
            kernel: kernel_word("osrelease"),
            interface: self.name.clone(),
            mtu: self.mtu,
            sink: self.sink,
        }
    }

    pub fn link(&self) -> io::Result<Link> {
        let found = links()?.into_iter().find(|link| link.index == self.interface);
        found.ok_or_else(|| io::Error::other(format!("interface {} is gone", self.name)))
    }

    pub fn counters(&self) -> io::Result<Counters> {
        Ok(self.link()?.counters)
    }

    /// Why the interface took no frame. The kernel's own words are those of a full queue also where it is the link that
    /// is down, and only of the latter is ENETDOWN a sure sign.
    pub fn refusal(&self, error: &io::Error) -> String {
        match self.link() {
            Err(gone) => gone.to_string(),
            Ok(link) if !link.up || error.raw_os_error() == Some(libc::ENETDOWN) => format!("{} went down", self.name),
            Ok(link) if !link.carrier => format!("{} has no carrier", self.name),
            Ok(_) => format!("{} takes no frames: {error}", self.name),
        }
    }

    /// That every thread of a test can settle: tried by threads that end at once.
    pub fn could_settle(&self) -> io::Result<()> {
        let roles = [Role::Send, Role::Receive, Role::ReceiveBesideSender];
        std::thread::scope(|scope| {
            roles.into_iter().try_for_each(|role| match scope.spawn(move || self.settle(role)).join() {
                Ok(settled) => settled,
                Err(_) => Err(io::Error::other("a thread ended by itself")),
            })
        })
    }

    /// Settle the calling thread on its CPU.
    pub fn settle(&self, role: Role) -> io::Result<()> {
        let cpu = match role {
            Role::Send => self.cpus.first(),
            Role::Receive => self.cpus.last(),
            Role::ReceiveBesideSender => self.cpus.get(1),
        };
        if let Some(&cpu) = cpu {
            // SAFETY: all-zero is an empty CPU set; `cpu` is checked against its size by the command line.
            let result = unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(cpu, &mut set);
                libc::sched_setaffinity(0, std::mem::size_of_val(&set), &set)
            };
            crate::socket::check(result)
                .map_err(|error| io::Error::new(error.kind(), format!("cannot run on CPU {cpu}: {error}")))?;
        }
        if let Some(priority) = self.priority {
            let parameter = libc::sched_param { sched_priority: priority };
            // SAFETY: a valid structure; 0 is the calling thread.
            let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) };
            crate::socket::check(result)
                .map_err(|error| io::Error::new(error.kind(), format!("no SCHED_FIFO {priority}: {error}")))?;
        }
        Ok(())
    }
}

/// Whether the kernel stops a real-time thread that spins: by default after 0.95 s for 0.05 s.
pub fn realtime_is_throttled() -> bool {
    let read = |name: &str| kernel_word(name).parse::<i64>().ok();
    throttles(read("sched_rt_runtime_us"), read("sched_rt_period_us"))
}

/// -1 is no limit (Linux Documentation/scheduler/sched-rt-group.rst).
fn throttles(runtime_us: Option<i64>, period_us: Option<i64>) -> bool {
    matches!((runtime_us, period_us), (Some(runtime), Some(period)) if runtime >= 0 && runtime < period)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Send,
    Receive,
    /// Another thread sends: one CPU for both would be worse than none.
    ReceiveBesideSender,
}

fn kernel_word(name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    text.trim().to_owned()
}

/// Involuntary context switches of the calling thread so far.
pub fn involuntary_switches() -> u64 {
    // SAFETY: all-zero is a valid rusage, which the call fills in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    usage.ru_nivcsw as u64
}

/// CPU time stolen by the hypervisor so far, all CPUs together, in ms.
pub fn stolen_ms() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    // cpu user nice system idle iowait irq softirq steal ...
    let ticks: u64 = text.split_whitespace().nth(8).and_then(|word| word.parse().ok()).unwrap_or(0);
    // SAFETY: no preconditions.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    ticks * 1000 / per_second
}

#[cfg(test)]
mod tests {
    use super::throttles;

    #[test]
    fn a_runtime_below_its_period_is_a_gap() {
        assert!(throttles(Some(950_000), Some(1_000_000)));
        assert!(!throttles(Some(-1), Some(1_000_000)) && !throttles(Some(1_000_000), Some(1_000_000)));
        assert!(!throttles(None, None));
    }
}
