#![no_main]

use framegen::control::{Identity, LogKind, Outgoing, Progress, Request, header, request};
use framegen::crc::crc32;
use framegen::frame::{Framing, Kind, Mac, build, parse};
use framegen::job::{Job, Limits, Report};
use framegen::log::Record;
use framegen::random::Random;
use framegen::server::{Server, Workshop};
use libfuzzer_sys::fuzz_target;

struct Checking;

impl Workshop for Checking {
    fn prepare(&mut self, _: Mac, job: &Job) -> Result<(), String> {
        job.check(&Limits::default(), 1500)
    }
    fn start(&mut self) {}
    fn stop(&mut self) -> Report {
        Report::default()
    }
    fn observe(&mut self, _: bool) -> u64 {
        0
    }

    fn log(&self, _: LogKind) -> &[Record] {
        &[]
    }
    fn progress(&self) -> Progress {
        Progress::default()
    }
    fn clear(&mut self) {}
}

fn deliver(server: &mut Server<Checking>, out: &Outgoing) -> Option<u32> {
    let (own, master) = (Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1]));
    let bytes = build(own, master, Framing::Length, &out.header, &out.payload);
    let answers = server.handle(&parse(&bytes).expect("a frame"), 1);
    answers.first().map(|answer| answer.header.test)
}

// Messages are separated by newlines; each gets its CRC.
fuzz_target!(|bytes: &[u8]| {
    let word = String::new;
    let identity = Identity { program: word(), host: word(), kernel: word(), interface: word(), mtu: 1500 };
    let mut server = Server::new(Checking, identity, Random::new(1));
    let hello = request(0, 1, &Request::Hello { program: word() });
    let session = deliver(&mut server, &hello).expect("welcome");
    deliver(&mut server, &request(session, 2, &Request::Claim));
    for (number, message) in (3..).zip(bytes.split(|&byte| byte == b'\n')) {
        let message = &message[..message.len().min(1400)];
        let mut payload = crc32(message).to_be_bytes().to_vec();
        payload.extend_from_slice(message);
        deliver(&mut server, &Outgoing { header: header(Kind::Control, 0, session, number), payload });
    }
});
