//! Properties of the frame parser and the serving side of the control protocol, over random input of fixed seeds.
//! The fuzz targets run the same two functions on what a fuzzer invents.

use framegen::control::{
    Identity, LogKind, Outgoing, Progress, Reply, Request, read_log_piece, read_reply, read_request, read_sync_reply,
    request,
};
use framegen::frame::{Frame, Framing, HEADER, Header, Kind, Mac, build, parse};
use framegen::job::{Job, Report};
use framegen::log::Record;
use framegen::random::Random;
use framegen::server::{Event, Server, Workshop};

const MASTERS: [Mac; 3] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 3])];
const OWN: Mac = Mac([2, 0, 0, 0, 0, 9]);

/// Notes who was worked for, and panics where the protocol's promises are broken.
#[derive(Default)]
struct Fake {
    master: Option<Mac>,
    started: bool,
    records: Vec<Record>,
}

impl Workshop for Fake {
    fn prepare(&mut self, master: Mac, job: &Job) -> Result<(), String> {
        assert_eq!(self.master, None, "one job at a time");
        if job.test.is_multiple_of(5) {
            return Err("no".into());
        }
        self.master = Some(master);
        Ok(())
    }

    fn start(&mut self) {
        assert!(self.master.is_some() && !self.started, "started once, after it was prepared");
        self.started = true;
    }

    fn stop(&mut self) -> Report {
        assert!(self.master.is_some(), "stopped only after it was prepared");
        // What is left are records: of a lost master too, until the next job.
        (self.master, self.started) = (None, false);
        let record = Record::from_bytes(&[7; Record::BYTES]);
        self.records = vec![record; 5000];
        Report { sent_records: 5000, ..Report::default() }
    }

    fn observe(&mut self, _: bool) -> u64 {
        0
    }

    fn log(&self, _: LogKind) -> &[Record] {
        &self.records
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn clear(&mut self) {
        *self = Fake::default();
    }
}

fn identity() -> Identity {
    let word = || "x".to_owned();
    Identity { program: word(), host: word(), kernel: word(), interface: word(), mtu: 1500, sink: None }
}

fn random_bytes(random: &mut Random, most: u64) -> Vec<u8> {
    let length = random.word() % (most + 1);
    (0..length).map(|_| random.word() as u8).collect()
}

fn random_header(random: &mut Random) -> Header {
    let kinds = [Kind::Control, Kind::Sync, Kind::Log, Kind::Data, Kind::Request, Kind::Response, Kind::Mark];
    Header {
        kind: kinds[random.word() as usize % kinds.len()],
        flags: random.word() as u16,
        test: random.word() as u32,
        stream: random.word() as u16,
        node: random.word() as u16,
        sequence: random.word() as u32,
        send_ns: random.word() as i64,
        length: 0,
        response: random.word() as u16,
    }
}

fn read_everything(frame: &Frame) {
    let _ = (read_request(frame), read_reply(frame), read_sync_reply(frame), read_log_piece(frame));
}

#[test]
fn whatever_is_built_is_read_back_padded_or_not() {
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let header = random_header(&mut random);
        let payload = random_bytes(&mut random, 1464);
        let framing = if random.word().is_multiple_of(2) { Framing::Length } else { Framing::Ethertype };
        let mut bytes = build(OWN, MASTERS[0], framing, &header, &payload);
        bytes.resize(bytes.len().max(60), 0);
        let frame = parse(&bytes).expect("our own frame");
        assert_eq!((frame.payload, frame.framing), (&payload[..], framing));
        assert_eq!(frame.header, Header { length: (HEADER + payload.len()) as u16, ..header });
        read_everything(&frame);
    }
}

#[test]
fn damage_to_a_header_is_never_taken_for_a_frame() {
    let mut random = Random::new(2);
    for _ in 0..20_000 {
        let header = random_header(&mut random);
        let payload = random_bytes(&mut random, 100);
        let mut bytes = build(OWN, MASTERS[0], Framing::Length, &header, &payload);
        // Up to three bytes anywhere behind the addresses: within what CRC-32 is certain to find.
        for _ in 0..=random.word() % 3 {
            let at = 12 + random.word() as usize % (bytes.len() - 12);
            bytes[at] ^= 1 + (random.word() % 255) as u8;
        }
        if let Ok(frame) = parse(&bytes) {
            assert_eq!(frame.header.send_ns, header.send_ns);
            assert_eq!((frame.header.sequence, frame.header.test), (header.sequence, header.test));
            read_everything(&frame);
        }
    }
}

#[test]
fn noise_is_nothing() {
    let mut random = Random::new(3);
    for _ in 0..50_000 {
        let mut bytes = random_bytes(&mut random, 200);
        if bytes.len() > 19 && random.word().is_multiple_of(2) {
            bytes[14..18].copy_from_slice(&framegen::frame::MAGIC);
            bytes[18] = 1;
        }
        assert!(parse(&bytes).is_err());
    }
}

/// A message some master might send: right, wrong, old, or for another session.
fn random_request(random: &mut Random) -> Request {
    match random.word() % 8 {
        0 => Request::Hello { program: "x".into() },
        1 => Request::Claim,
        2 | 3 => Request::Prepare(Box::new(job(random.word() as u32))),
        4 => Request::Start,
        5 => Request::Stop,
        6 => Request::Fetch {
            log: LogKind::Sent,
            first: random.word() >> (random.word() % 64),
            frames: random.word() as u16,
        },
        _ => Request::Release,
    }
}

fn job(test: u32) -> Job {
    let text = r#"{"test":0,"node":1,"framing":"length","payload":"random","receive":"ring","send":null,"expect":[],
                   "respond":false,"group":null,"log":true,"max_seconds":1.0}"#;
    Job { test, ..serde_json::from_str(text).expect("a job") }
}

fn deliver(server: &mut Server<Fake>, master: Mac, out: &Outgoing, now: i64) -> Vec<Outgoing> {
    let bytes = build(OWN, master, Framing::Length, &out.header, &out.payload);
    let answers = server.handle(&parse(&bytes).expect("a frame"), now);
    assert!(answers.len() <= 64, "bounded whatever is asked");
    for answer in &answers {
        assert_eq!(answer.header.flags, framegen::frame::FLAG_REPLY);
        assert!(HEADER + answer.payload.len() <= 1500, "an answer fits a frame");
    }
    answers
}

#[test]
fn masters_at_random_share_one_server() {
    let mut ended = 0;
    let mut lost = 0;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut server = Server::new(Fake::default(), identity(), Random::new(seed));
        let mut sessions = [0u32; 3];
        let mut numbers = [0u32; 3];
        let mut holder: Option<usize> = None;
        let mut recorded: Vec<(usize, Outgoing)> = Vec::new();
        let mut now = 0;
        for _ in 0..3000 {
            now += (random.word() % 20_000_000) as i64;
            let who = random.word() as usize % 3;
            let (who, out) = if !recorded.is_empty() && random.word().is_multiple_of(4) {
                recorded[random.word() as usize % recorded.len()].clone()
            } else {
                numbers[who] += 1;
                let session = if random.word().is_multiple_of(10) { random.word() as u32 } else { sessions[who] };
                (who, request(session, numbers[who], &random_request(&mut random)))
            };
            recorded.push((who, out.clone()));
            let before = holder;
            for answer in deliver(&mut server, MASTERS[who], &out, now) {
                let bytes = build(MASTERS[who], OWN, Framing::Length, &answer.header, &answer.payload);
                if let Some(Reply::Welcome(_)) = read_reply(&parse(&bytes).expect("a frame")) {
                    sessions[who] = answer.header.test;
                }
            }
            if random.word().is_multiple_of(500) {
                now += 4_000_000_000;
            }
            server.tick(now);
            for event in std::mem::take(&mut server.events) {
                ended += u32::from(matches!(event, Event::Ended(..)));
                match event {
                    Event::Claimed(master) => {
                        assert_eq!(holder, None, "claimed while held");
                        holder = MASTERS.iter().position(|&mac| mac == master);
                    }
                    Event::Prepared(master) | Event::Ended(master, _) => {
                        assert_eq!(holder.map(|h| MASTERS[h]), Some(master), "worked for who does not hold it");
                    }
                    Event::Released(master) | Event::Lost(master, _) => {
                        lost += u32::from(matches!(event, Event::Lost(..)));
                        assert_eq!(holder.map(|h| MASTERS[h]), Some(master));
                        holder = None;
                    }
                }
            }
            assert_eq!(server.is_held(), holder.is_some());
            let working = server.workshop.master;
            assert!(working.is_none() || working == holder.map(|h| MASTERS[h]), "{before:?} {holder:?}");
        }
    }
    assert!(ended > 300 && lost > 100, "the random masters got somewhere: {ended} jobs, {lost} lost sessions");
}

#[test]
fn a_replayed_session_starts_nothing() {
    let mut server = Server::new(Fake::default(), identity(), Random::new(1));
    let master = MASTERS[0];
    let mut recorded = Vec::new();
    let mut say = |server: &mut Server<Fake>, session: u32, number: u32, message: &Request| {
        let out = request(session, number, message);
        recorded.push(out.clone());
        deliver(server, master, &out, i64::from(number))
    };
    let welcome = say(&mut server, 0, 1, &Request::Hello { program: "x".into() });
    let session = welcome[0].header.test;
    let conversation =
        [Request::Claim, Request::Prepare(Box::new(job(1))), Request::Start, Request::Stop, Request::Release];
    for (number, message) in (2..).zip(&conversation) {
        assert_eq!(say(&mut server, session, number, message).len(), 1, "{message:?}");
    }
    assert!(!server.is_held());
    let events = std::mem::take(&mut server.events);
    assert_eq!(events.len(), 4, "claimed, prepared, ended, released: {events:?}");
    for out in &recorded {
        deliver(&mut server, master, out, 100);
    }
    assert!(!server.is_held() && server.events.is_empty());
}

#[test]
fn a_repeated_request_is_done_once_and_answered_again() {
    let mut server = Server::new(Fake::default(), identity(), Random::new(1));
    let master = MASTERS[1];
    let session =
        deliver(&mut server, master, &request(0, 1, &Request::Hello { program: "x".into() }), 1)[0].header.test;
    let conversation = [Request::Claim, Request::Prepare(Box::new(job(1))), Request::Start, Request::Stop];
    for (number, message) in (2..).zip(&conversation) {
        let out = request(session, number, message);
        let first = deliver(&mut server, master, &out, 2);
        assert_eq!(first.len(), 1);
        // The fake panics if anything is done twice.
        assert_eq!(deliver(&mut server, master, &out, 3), first);
    }
}

#[test]
fn a_flood_of_hellos_is_answered_in_bounds() {
    let mut server = Server::new(Fake::default(), identity(), Random::new(1));
    let hello = request(0, 1, &Request::Hello { program: "x".into() });
    let answered: usize = (0..100_000).map(|i| deliver(&mut server, MASTERS[0], &hello, i * 10_000).len()).sum();
    assert!((1..=1001).contains(&answered), "{answered} in one second");
}

#[test]
fn a_flood_from_few_addresses_takes_no_answer_from_others() {
    let hello = request(0, 1, &Request::Hello { program: "x".into() });
    for seed in 0..50 {
        let mut server = Server::new(Fake::default(), identity(), Random::new(seed));
        for number in 0..480_u32 {
            deliver(&mut server, Mac([2, 0, 0, 0, 1, (number % 8) as u8]), &hello, 1);
        }
        assert_eq!(deliver(&mut server, MASTERS[0], &hello, 2).len(), 1, "seed {seed}");
    }
}

#[test]
fn answers_to_a_flood_from_all_addresses_are_bounded() {
    let mut server = Server::new(Fake::default(), identity(), Random::new(1));
    let hello = request(0, 1, &Request::Hello { program: "x".into() });
    let from = |number: u32| Mac([2, 0, 0, 0, (number >> 8) as u8, number as u8]);
    let answered: usize = (0..40_000).map(|i| deliver(&mut server, from(i), &hello, 1).len()).sum();
    assert!((1..=4 * 64 * 50).contains(&answered), "{answered} in one second");
}
