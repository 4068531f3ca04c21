//! What --help prints.

pub const USAGE: &str = r#"framegen - raw IEEE 802.3 test frames: sends, receives, times and counts them

  framegen serve -i INTERFACE                      do what a master asks, until interrupted
  framegen TEST -i INTERFACE -p PEER [options]     steer a test from here
  framegen hello -i INTERFACE -p PEER              is the peer there?
  framegen interfaces                              what this host's interfaces can do
  framegen fetch -i INTERFACE -p PEER -o DIR       records that a peer kept of a test whose master was lost
  framegen pause -i INTERFACE --allow-pause        ask the other end of the cable to stop sending (802.3x)
  framegen state -i INTERFACE [-p PEER ...]        counters and facts of this host, and of peers
  framegen switch --plan FILE [--virtual -o DIR]   a switch as its plan says (docs/switch.md)

TEST
  request-response  a request of --request-bytes, a response of each of --sizes
  ping-pong         request and response of each of --sizes
  stream            frames one way (--direction), paced by --spacing-us and --arrivals
  max-rate          a stream without spacing, 1 s a size unless --count or --seconds
  background        a stream without frame logs, 1500 bytes every 28 us unless told otherwise
  one-to-many       a request to --group, a response from every -p
  many-to-one       every -p sends a stream here
  clock             compare the clocks

What is sent
  --sizes LIST          user bytes: 64,512 or 64:1500:1 (first:last:step) or 1000+-3; default 64
  --count N             frames or loops a size; default 1000
  --seconds S           a time instead of a count
  --spacing-us X        from frame to frame (burst to burst, request to request); default 100, round trips 0
  --arrivals HOW        regular (default), poisson, burst, file
  --seed N              of poisson; default 1
  --burst N             frames a burst; default 10
  --times FILE          departures in us, one a line (implies --arrivals file)
  --late HOW            slip (default), catch-up, skip
  --request-bytes N     of request-response and one-to-many, or same: as the response; default 64
  --direction HOW       of a stream: to-peer (default), from-peer, both
  --payload HOW         random (default), ramp, constant
  --ethertype           EtherType 0x88B5 instead of a length field
  --udp                 the same as UDP over IPv4: -p and --group are IPv4 addresses then
  --marks N             MARK frames before and after; default 0
  --histogram-ns N      count round trips in bins of N ns instead of logging frames: for very long scans
  --group ADDRESS       of one-to-many; default 03:00:00:46:47:01
  --answers HOW         of one-to-many: unicast (default) or group
  --pause-seconds S     of a stream to the peer: the peer asks for a pause of its port, so that a switch holds what
                        comes; both ends with --allow-pause; at most 1
  --pause-after-ms X    from the first frame on; default 0
  --bystander ADDRESS   a further node, of a stream: counts the frames that a switch floods to it

How
  --receive HOW         busy, batch, ring, or hardware (the card's timestamps); default busy for round trips,
                        ring for streams
  --transmit HOW        send, batch (of up to 16 frames where there is no pause), ring; default batch for max-rate
                        of raw frames, else send
  --timeout-ms X        for a response; default 100
  --drain-ms X          for the last frames of a stream; default 200
  --cpu A[,B]           CPU of the sending thread, and of the receiving one
  --priority N          SCHED_FIFO priority of both

What comes out
  -o, --output DIR      summary.json and the frame logs
  --json                events as JSON, one a line
  --step                wait for a line on standard input at "ready" and at "sent"
  --step-seconds S      for at most this long; default 60
  --with-parent         end when the process that started this one ends

Bounds and permissions
  --max-seconds S       of the whole run; default 60
  --max-frames N        of a stream; default 10000000
  --max-bytes N         on the wire, of a stream; default 16e9
  --max-rate-mbit X     on the wire, averaged over 1 ms; default 1000
  --key FILE            sign control frames with it, and take none that is not; the same file on every host
  --allow-default-route --allow-multicast --allow-broadcast
  --allow-unknown       send a stream to an address without a handshake
  --dry-run             say what would be sent, send nothing

pause, serve, and streams with --pause-seconds
  --allow-pause         without it no PAUSE frame is sent
  --seconds S           of pause: for so long; default 1
  --quanta N            of each PAUSE frame, in 512 bit times; default 65535
  --link-mbit X         rate of the link where the card does not tell; default 1000

serve only
  --only ADDRESS        serve this master only
  --once                end after one session
  --seconds S           end after this time
  --sink INTERFACE      receive test frames there, where nothing is ever sent: no switch learns its address

switch only
  --plan FILE           what the switch is and does, TOML
  --virtual             send nothing: compute the times, and write the logs that the plan's nodes would leave
  --seed N              instead of the plan's
  --seconds S           of real frames: end after this time; default and at most --max-seconds

For tests of this program
  --clock-offset-us X, --clock-drift-ppm X    a synthetic error of this node's clock
"#;
