# Shipped with pcitrace; runs in libsigrokdecode, not in pcitrace.
import sigrokdecode as srd

COMMANDS = (
    "interrupt_acknowledge", "special_cycle", "io_read", "io_write", "reserved_4", "reserved_5", "memory_read",
    "memory_write", "reserved_8", "reserved_9", "config_read", "config_write", "memory_read_multiple",
    "dual_address_cycle", "memory_read_line", "memory_write_invalidate",
)  # fmt: skip
SPECIAL_CYCLE, DUAL_ADDRESS = 1, 13
ROWS = ("transaction", "data", "burst", "frame", "problem", "note")
TRANSACTION, DATA, BURST, FRAME, PROBLEM, NOTE = range(6)
CLK, FRAME_N, IRDY_N, TRDY_N, DEVSEL_N, STOP_N, RST_N, REQ64_N, ACK64_N, AD = range(10)
CBE = AD + 64
LOST, IDLE, ADDRESS2, OPEN, FINAL, DONE = range(6)
NOT_WIRED = 2
HOW = "decoded by the PCI decoder alone, which is slow; pcitrace export --to sigrok writes the file for option 'file'"


def channel(id, name, desc):
    return {"id": id, "name": name, "desc": desc}


class Decoder(srd.Decoder):
    api_version = 3
    id = "pci"
    name = "PCI"
    longname = "Peripheral Component Interconnect"
    desc = "Parallel PCI bus: what pcitrace found, or by itself."
    license = "bsd"
    inputs = ["logic"]
    outputs = []
    tags = ["PC"]
    channels = (channel("clk", "CLK", "Clock"),)
    optional_channels = (
        channel("frame", "FRAME#", "Cycle frame"),
        channel("irdy", "IRDY#", "Initiator ready"),
        channel("trdy", "TRDY#", "Target ready"),
        channel("devsel", "DEVSEL#", "Device select"),
        channel("stop", "STOP#", "Stop"),
        channel("rst", "RST#", "Reset"),
        channel("req64", "REQ64#", "Request 64-bit transfer"),
        channel("ack64", "ACK64#", "Acknowledge 64-bit transfer"),
        *(channel(f"ad{n}", f"AD{n}", f"Address and data {n}") for n in range(64)),
        *(channel(f"cbe{n}", f"CBE{n}#", f"Command and byte enable {n}") for n in range(8)),
    )
    options = (
        {"id": "file", "desc": "Annotations written by pcitrace (x.sr.pci.tsv)", "default": ""},
        {"id": "bus", "desc": "Of these only those of this bus", "default": ""},
    )
    annotations = tuple((row, row.capitalize()) for row in ROWS)
    annotation_rows = tuple((f"{row}s", f"{row.capitalize()}s", (n,)) for n, row in enumerate(ROWS))

    def __init__(self):
        self.reset()

    def reset(self):
        self.state = LOST
        self.open = None
        self.last = 0  # sample of the clock before

    def start(self):
        self.out_ann = self.register(srd.OUTPUT_ANN)

    def say(self, first, last, row, text):
        self.put(first, last, self.out_ann, [row, [text, text.split(":")[0].split(" ")[0]]])

    def decode(self):
        if self.options["file"]:
            self.replay()
        else:
            self.by_itself()

    # ---- what pcitrace found

    def replay(self):
        wanted = self.options["bus"]
        with open(self.options["file"], encoding="utf-8") as file:
            if not file.readline().startswith("# pcitrace annotations 1"):
                raise srd.SamplerateError(f"{self.options['file']} is no file of annotations that pcitrace wrote")
            numbers = {row: number for number, row in enumerate(ROWS)}
            put, out = self.put, self.out_ann
            for line in file:
                first, last, row, bus, text = line.rstrip("\n").split("\t", 4)
                if not wanted or bus == wanted:
                    put(int(first), int(last), out, [numbers[row], [text, text.split(" ", 1)[0]]])
        while True:
            self.wait({"skip": 1 << 30})

    # ---- by itself

    def by_itself(self):
        before = self.wait()
        wired = [n for n, pin in enumerate(before) if pin < NOT_WIRED]
        missing = [
            name for name, pin in (("FRAME#", FRAME_N), ("IRDY#", IRDY_N), ("TRDY#", TRDY_N)) if pin not in wired
        ]
        if missing:
            raise srd.ChannelError(f"PCI needs {' '.join(missing)}, or the option 'file'")
        self.has_stop, self.has_devsel, self.has_rst = (pin in wired for pin in (STOP_N, DEVSEL_N, RST_N))
        self.ad = [n for n in range(64) if AD + n in wired]
        self.cbe = [n for n in range(8) if CBE + n in wired]
        self.has_ad = self.ad[:32] == list(range(32))
        self.has_cbe = self.cbe[:4] == list(range(4))
        self.say(0, 0, NOTE, HOW)
        # Any change is looked at, so that the values before an edge are known: those after it may be new ones.
        busy = [{CLK: "r"}, *({n: "e"} for n in wired if n != CLK)]
        quiet = [{FRAME_N: "f"}, {IRDY_N: "f"}, *([{RST_N: "f"}] if self.has_rst else [])]
        try:
            while True:
                if self.state == IDLE and before[FRAME_N] and before[IRDY_N] and (not self.has_rst or before[RST_N]):
                    # Nothing happens until one of them falls; a clock that rises with it still sees an idle bus.
                    before = self.wait(quiet)
                    continue
                pins = self.wait(busy)
                if self.matched[0]:
                    self.clock(self.samplenum, before)
                before = pins
        except EOFError:
            if self.open:
                self.close("legal" if self.state == DONE else "truncated")
            raise

    def clock(self, sample, pins):
        """One rising edge of CLK, with the values before it."""
        frame, irdy = not pins[FRAME_N], not pins[IRDY_N]
        if self.has_rst and not pins[RST_N]:
            if self.open:
                self.close("legal" if self.state == DONE else "truncated")
            self.state = LOST
        elif self.state == LOST:
            if not frame and not irdy:
                self.state = IDLE
        elif frame and not irdy and self.state in (IDLE, FINAL, DONE):
            if self.open:
                self.close("legal")
            self.begin(sample, pins)
        elif self.state == IDLE:
            if irdy:
                self.illegal(sample, "IRDY# without an address phase")
        elif self.state == ADDRESS2:
            self.second_address(sample, pins, frame, irdy)
        else:
            self.in_transaction(sample, pins, frame, irdy)
        self.last = sample

    def begin(self, sample, pins):
        command = self.number(pins, CBE, 4) if self.has_cbe else None
        dac = command == DUAL_ADDRESS
        self.open = {
            "start": sample, "command": None if dac else command, "dac": dac, "phases": [], "stop": None,
            "claimed": False, "answered": False, "trdy": False, "wide": not pins[REQ64_N] or pins[REQ64_N] > 1,
            "address": self.number(pins, AD, 32) if self.has_ad else None, "whole": not dac,
        }  # fmt: skip
        self.state = ADDRESS2 if dac else OPEN

    def second_address(self, sample, pins, frame, irdy):
        if frame:
            self.open["command"] = self.number(pins, CBE, 4)
            if self.has_ad:
                self.open["address"] |= self.number(pins, AD, 32) << 32
            self.open["whole"] = True
            self.state = OPEN
            return
        self.close("illegal")
        self.illegal(sample, "FRAME# released after half an address")
        self.state = LOST if irdy else IDLE

    def in_transaction(self, sample, pins, frame, irdy):
        if self.state == OPEN and not frame and not irdy:
            self.close("illegal")
            self.illegal(sample, "FRAME# released without IRDY#")
            self.state = IDLE
        elif self.state in (FINAL, DONE) and not irdy:
            self.close("legal")
            self.state = IDLE
        elif (self.state == FINAL and frame) or self.state == DONE:
            ending = "legal" if self.state == DONE else "illegal"
            self.close(ending)
            self.illegal(sample, "IRDY# held after the last data phase" if ending == "legal" else "FRAME# returned")
        else:
            self.body(sample, pins, irdy)
            if not frame:
                completes = irdy and (not pins[TRDY_N] or (self.has_stop and not pins[STOP_N]))
                self.state = DONE if completes else FINAL

    def body(self, sample, pins, irdy):
        """A clock after the address phases."""
        one = self.open
        one["trdy"] = trdy = not pins[TRDY_N]
        stop = self.has_stop and not pins[STOP_N]
        devsel = self.has_devsel and not pins[DEVSEL_N]
        one["claimed"] |= devsel
        one["answered"] |= trdy or stop
        if irdy and stop and one["stop"] is None:
            one["stop"] = (trdy, devsel, bool(one["phases"]))
        if irdy and trdy:
            wide = one["wide"] and pins[ACK64_N] == 0 and len(self.ad) == 64
            one["phases"].append((sample, self.word(pins, wide)))

    def word(self, pins, wide):
        if not self.has_ad:
            return "?"
        lanes = 8 if wide else 4
        digits = f"{self.number(pins, AD, 8 * lanes):0{2 * lanes}x}"
        if not self.has_cbe:
            return digits
        off = [pins[CBE + lane] == 1 for lane in range(lanes)]
        pairs = [digits[n : n + 2] for n in range(0, 2 * lanes, 2)]
        return "".join(".." if off[lanes - 1 - n] else pair for n, pair in enumerate(pairs))

    def close(self, ending):
        """The transaction ended at the clock before."""
        one, self.open = self.open, None
        if not one["whole"]:
            one["command"] = one["address"] = None
        command = "transaction" if one["command"] is None else COMMANDS[one["command"]]
        address = "" if one["address"] is None else f" 0x{one['address']:0{16 if one['address'] >> 32 else 8}x}"
        count = len(one["phases"])
        phases = f"{count} data phase{'' if count == 1 else 's'}"
        text = f"{command}{address}: {phases}, {self.termination(one, ending)}"
        self.say(one["start"], self.last, TRANSACTION, text)
        for sample, word in one["phases"]:
            self.say(sample, sample + 1, DATA, word)

    def termination(self, one, ending):
        if ending == "truncated":
            return "truncated"
        if ending == "illegal":
            return "unknown"
        if one["stop"]:
            trdy, devsel, moved = one["stop"]
            if trdy:
                return "disconnect_with_data"
            if not self.has_devsel:
                return "unknown"
            return ("disconnect_without_data" if moved else "retry") if devsel else "target_abort"
        if one["trdy"]:
            return "completion" if self.has_stop else "unknown"
        if one["command"] == SPECIAL_CYCLE:
            return "special_cycle"
        nobody = not one["claimed"] if self.has_devsel else self.has_stop and not one["answered"]
        return "master_abort" if nobody else "unknown"

    def illegal(self, sample, text):
        self.state = LOST
        self.say(sample, sample + 1, PROBLEM, f"illegal_sequence: {text}")

    def number(self, pins, first, count):
        value = 0
        for n in range(count - 1, -1, -1):
            value = value << 1 | (pins[first + n] & 1)
        return value
