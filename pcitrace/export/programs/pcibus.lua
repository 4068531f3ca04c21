-- Transactions of a PCI bus as pcitrace exports them (pcitrace export RUN --to pcapng); shipped with pcitrace.
-- Link type USER0. The layout is that of pcitrace/export/pcapng.py.

local pci = Proto("pcibus", "PCI bus transaction")

local commands = {
  [0] = "interrupt_acknowledge", "special_cycle", "io_read", "io_write", "reserved_4", "reserved_5", "memory_read",
  "memory_write", "reserved_8", "reserved_9", "config_read", "config_write", "memory_read_multiple",
  "dual_address_cycle", "memory_read_line", "memory_write_invalidate",
}
local terminations = {
  [0] = "completion", "retry", "disconnect_with_data", "disconnect_without_data", "target_abort", "master_abort",
  "special_cycle", "truncated", "unknown",
}

local f = pci.fields
f.problem = ProtoField.string("pcibus.problem", "Problem of no transaction")
f.bus = ProtoField.string("pcibus.bus", "Bus")
f.transaction = ProtoField.uint64("pcibus.transaction", "Transaction")
f.cmd = ProtoField.uint8("pcibus.cmd", "Command", base.DEC, commands)
f.command = ProtoField.string("pcibus.command", "Command name")
f.address = ProtoField.uint64("pcibus.address", "Address", base.HEX)
f.initiator = ProtoField.string("pcibus.initiator", "Initiator")
f.termination = ProtoField.string("pcibus.termination", "Termination")
f.start_clk = ProtoField.uint64("pcibus.start_clk", "First clock")
f.clocks = ProtoField.uint64("pcibus.clocks", "Clocks")
f.data_phases = ProtoField.uint32("pcibus.data_phases", "Data phases")
f.bytes = ProtoField.uint32("pcibus.bytes", "Bytes")
f.bytes_exact = ProtoField.bool("pcibus.bytes_exact", "Bytes counted from the byte enables")
f.wait = ProtoField.uint32("pcibus.wait", "Clocks without data")
f.target_wait = ProtoField.uint32("pcibus.target_wait", "Clocks the target waited")
f.initiator_wait = ProtoField.uint32("pcibus.initiator_wait", "Clocks the initiator waited")
f.devsel = ProtoField.uint8("pcibus.devsel", "Clocks to DEVSEL#")
f.fast = ProtoField.bool("pcibus.fast_back_to_back", "Fast back-to-back")
f.dac = ProtoField.bool("pcibus.dac", "Dual address cycle")
f.parity = ProtoField.bool("pcibus.address_parity_ok", "Address parity right")
f.perr = ProtoField.bool("pcibus.perr", "PERR#")
f.serr = ProtoField.bool("pcibus.serr", "SERR#")
f.suspect = ProtoField.bool("pcibus.suspect", "Read too near an edge")
f.offset = ProtoField.uint32("pcibus.data.offset", "After the address phase (ns)")
f.data = ProtoField.uint64("pcibus.data", "Data", base.HEX)
f.enables = ProtoField.uint8("pcibus.data.byte_enables", "Byte enables (active low)", base.HEX)
f.data_parity = ProtoField.bool("pcibus.data.parity_wrong", "Data parity wrong")

local function set(bits, bit)
  return math.floor(bits / 2 ^ bit) % 2 == 1
end

function pci.dissector(buffer, pinfo, tree)
  if buffer:len() < 62 then return 0 end
  local known, flags = buffer(2, 2):le_uint(), buffer(4, 2):le_uint()
  local command = buffer(6, 1):uint()
  local termination = terminations[buffer(1, 1):uint()] or "unknown"
  local at = 60
  local bus = buffer(at + 1, buffer(at, 1):uint())
  at = at + 1 + bus:len()
  local initiator_length = buffer(at, 1):uint()
  local initiator = initiator_length > 0 and buffer(at + 1, initiator_length) or nil
  at = at + 1 + initiator_length

  pinfo.cols.protocol = "PCI"
  if buffer(0, 1):uint() == 2 then
    local kind = initiator and initiator:string() or "problem"
    pinfo.cols.info = string.format("problem: %s", kind)
    local top = tree:add(pci, buffer(), string.format("PCI problem %s", kind))
    top:add(f.bus, bus)
    if initiator then top:add(f.problem, initiator) end
    top:add_le(f.start_clk, buffer(16, 8))
    return buffer:len()
  end
  pinfo.cols.src = initiator and initiator:string() or "?"
  local name = set(known, 2) and commands[command] or "transaction"
  local where = set(known, 3) and string.format("0x%s", buffer(32, 8):le_uint64():tohex():gsub("^0*(%x%x%x%x%x%x%x%x)$", "%1")) or ""
  local phases = buffer(40, 4):le_uint()
  pinfo.cols.dst = where
  pinfo.cols.info = string.format("%s %s: %d data phase%s, %s", name, where, phases, phases == 1 and "" or "s", termination)

  local top = tree:add(pci, buffer(), string.format("PCI %s %s", name, where))
  top:add(f.bus, bus)
  top:add_le(f.transaction, buffer(8, 8))
  if set(known, 2) then
    top:add(f.cmd, buffer(6, 1))
    top:add(f.command, buffer(6, 1), commands[command])
  end
  if set(known, 3) then top:add_le(f.address, buffer(32, 8)) end
  if set(known, 7) and initiator then top:add(f.initiator, initiator) end
  top:add(f.termination, buffer(1, 1), termination)
  top:add_le(f.start_clk, buffer(16, 8))
  top:add_le(f.clocks, buffer(24, 8))
  top:add_le(f.data_phases, buffer(40, 4))
  if set(known, 4) then
    top:add_le(f.bytes, buffer(44, 4))
    top:add(f.bytes_exact, buffer(4, 1), set(flags, 1))
  end
  top:add_le(f.wait, buffer(48, 4))
  if set(known, 5) then top:add_le(f.target_wait, buffer(52, 4)) end
  top:add_le(f.initiator_wait, buffer(56, 4))
  if set(known, 6) then top:add(f.devsel, buffer(7, 1)) end
  top:add(f.fast, buffer(4, 1), set(flags, 0))
  for bit, field in pairs({ [8] = f.dac, [9] = f.parity, [10] = f.perr, [11] = f.serr, [12] = f.suspect }) do
    if set(known, bit) then top:add(field, buffer(4, 2), set(flags, bit)) end
  end
  while at + 14 <= buffer:len() do
    local there = buffer(at + 4, 1):uint()
    local phase = top:add(pci, buffer(at, 14), "Data phase")
    phase:add_le(f.offset, buffer(at, 4))
    if set(there, 0) then phase:add_le(f.data, buffer(at + 6, 8)) end
    if set(there, 1) then phase:add(f.enables, buffer(at + 5, 1)) end
    phase:add(f.data_parity, buffer(at + 4, 1), set(there, 2))
    at = at + 14
  end
  return buffer:len()
end

DissectorTable.get("wtap_encap"):add(wtap.USER0, pci)
