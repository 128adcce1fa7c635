-- One request on all its accounts, all or nothing. KEYS[i] is an account; only a
-- correction may name one twice. Numbers are integers below 2^53, exact in a
-- double; instants are microseconds since the Unix epoch.
--
-- ARGV[1]    verb (0 peek, 1 take, 2 settle, 3 reset), deadline, ahead, slack, instant
-- ARGV[i+1]  head, cost, shadow        for KEYS[i]; to settle head of the limit under
--                                      which it was taken, correction, and instant
--                                      of what is corrected
-- head       1, kind (0 bucket, 1 window, 2 log), n, p, capacity
-- value      head, at, used                  of a bucket (in p-ths of a token) or
--                                            of a window
--            head, at, {instant, total}...   of a log; totals count from its start
--                                            kinds 5 and 6 are a window and a log that
--                                            were made from a bucket: their next limit
--                                            gets what is left, until that window ends
--                                            or the log's first entry has left
-- reply      clock                           where the deadline has passed; else
--            clock, {used, at}..., healed    for a log {used, at, wait, reset}
--
-- A bucket gains n p-ths of a token a microsecond; windows and logs are n
-- microseconds long and have p = 1. at is the instant of the latest debit.
-- What is rare is in functions inside functions, which cost nothing until then.

local call, write, read = redis.call, struct.pack, struct.unpack
local byte, sub, floor, fmod = string.byte, string.sub, math.floor, math.fmod
local MOST = 9007199254740992

local verb, deadline, ahead, slack, now = read('<ddddd', ARGV[1])
local time = call('TIME')
local clock = time[1] * 1e6 + time[2]
local reply = write('<d', clock)
if clock > deadline then return reply end
if slack == 0 then now = clock end
if verb == 3 then return reply .. write('<d', 0 * call('DEL', unpack(KEYS))) end

-- expiry is the millisecond after an account is full again, or the next.
local function expiry(full)
  return string.format('%.0f', floor((full - now + clock + slack) / 1000) + 2)
end

-- keep writes a bucket or a window.
local function keep(key, head, kind, n, at, used)
  local full = at + used / n
  if kind == 1 then full = (floor(at / n) + 1) * n end
  call('SET', key, head .. write('<dd', at, used), 'PXAT', expiry(full))
end

-- logs returns the functions for rolling logs.
local function logs()
  local function entry(state, k) return read('<dd', state, 19 + 16 * k) end

  -- back returns the state with all its instants set back.
  local function back(state, count, by)
    local entries = {sub(state, 1, 26), write('<d', now)}
    for k = 1, count do
      local instant, total = entry(state, k)
      entries[k + 2] = write('<dd', instant - by, total)
    end
    return table.concat(entries)
  end

  -- open reads a log of n microseconds, or nothing where the state is no log.
  -- Entries from first to count are live, and base is the total before them.
  local function open(state, n)
    if #state < 34 or (#state - 34) % 16 ~= 0 then return end
    local log = {state = state, count = (#state - 34) / 16, base = 0, total = 0}
    log.last = read('<d', state, 27)
    local anchor = log.last
    if log.count > 0 then log.last, log.total = entry(state, log.count) end
    if anchor % 1 ~= 0 or log.last % 1 ~= 0 or log.total % 1 ~= 0 or log.last > MOST then return end
    if log.last > anchor then anchor = log.last end
    if anchor - now > ahead then
      log.state, log.last = back(state, log.count, anchor - now), log.last - (anchor - now)
      log.heals, anchor = true, now
    end
    log.at = anchor > now and anchor or now
    local first, past = 1, log.count + 1
    while first < past do
      local mid = floor((first + past) / 2)
      if entry(log.state, mid) <= log.at - n then first = mid + 1 else past = mid end
    end
    log.first = first
    if first > 1 then
      local _, before = entry(log.state, first - 1)
      log.base = before
    end
    return log
  end

  -- start returns a log in which used tokens were taken at once.
  local function start(at, used)
    local log = {state = string.rep('-', 34), at = at, first = 1, count = 0, base = 0, total = 0,
      last = at - MOST, changed = true}
    if used > 0 then
      log.state, log.count, log.total, log.last = log.state .. write('<dd', at, used), 1, used, at
    end
    return log
  end

  -- wait returns the time until at most left tokens are used.
  local function wait(log, n, left)
    local low, high = log.first, log.count
    while low < high do
      local mid = floor((low + high) / 2)
      local _, total = entry(log.state, mid)
      if log.total - total <= left then high = mid else low = mid + 1 end
    end
    return n - (log.at - entry(log.state, low))
  end

  -- append adds cost tokens, or, for 0, writes the log under another head. One
  -- entry that has left stays, for the total before the first that is live.
  local function append(key, head, log, n, cost)
    local at, total = log.at, log.total + cost
    local size, merges = #log.state, cost > 0 and log.last == log.at
    if log.changed or log.heals or log.first - 2 > log.count - log.first then
      local kept = sub(log.state, 19 + 16 * math.max(log.first - 1, 1), merges and -17 or -1)
      if cost > 0 then kept, log.last = kept .. write('<dd', at, total), at end
      call('SET', key, head .. write('<d', at) .. kept, 'PXAT', expiry(log.last + n))
    elseif merges then
      call('SETRANGE', key, size - 8, write('<d', total))
    else
      call('APPEND', key, write('<dd', at, total))
      call('PEXPIREAT', key, expiry(at + n))
    end
  end

  -- settle corrects by delta the first entry that is not before taken. If what was
  -- taken has left, a credit is nothing and a debit is taken now. The first entry
  -- stays, though empty, if it says until when the log was made from a bucket.
  local function settle(key, head, log, n, lowest, delta, taken, carried)
    if taken <= log.at - n then
      if delta <= 0 then return end
      taken = log.at
    end
    local debit = math.min(delta, math.max(lowest - (log.total - log.base), 0))
    local entries, total, last = {}, log.base, log.at
    local function add(instant, tokens, keeps)
      if tokens <= 0 and not keeps then return end
      total = total + math.max(tokens, 0)
      if tokens > 0 then last = instant end
      entries[#entries + 1] = write('<dd', instant, total)
    end
    if log.base > 0 then
      entries[1] = sub(log.state, 3 + 16 * log.first, 18 + 16 * log.first)
    end
    local before, found = log.base, false
    for k = log.first, log.count do
      local instant, upto = entry(log.state, k)
      local tokens = upto - before
      before = upto
      if instant >= taken and not found then
        found, tokens = true, tokens + debit
      end
      add(instant, tokens, carried and k == 1)
    end
    if not found then add(taken, debit) end
    if total > log.base then
      local value = head .. write('<d', log.at) .. table.concat(entries)
      call('SET', key, value, 'PXAT', expiry(last + n))
    else
      call('DEL', key)
    end
  end

  return {open = open, start = start, wait = wait, append = append, settle = settle}
end

-- changes returns the functions for values that are not under the request's limit.
local function changes()
  -- rebase returns what is used of a bucket (n, p, cap) that had used of m, q and c:
  -- the balance rounded down, a debt rounded up.
  local function rebase(used, q, c, p, cap)
    local left, debt = c * q - used, false
    if left < 0 then left, debt = -left, true end
    local part = fmod(left, q)
    local whole, scaled, over = (left - part) / q, part * p, 0
    if scaled < MOST then
      over = fmod(scaled, q)
      scaled = (scaled - over) / q
    else -- a bit of p at a time, so that no product is rounded
      scaled = 0
      local bit, rest = MOST / 2, p
      while bit >= 1 do
        scaled, over = 2 * scaled, 2 * over
        if over >= q then scaled, over = scaled + 1, over - q end
        if rest >= bit then
          rest, over = rest - bit, over + part
          if over >= q then scaled, over = scaled + 1, over - q end
        end
        bit = bit / 2
      end
    end
    if debt then
      if over > 0 then scaled = scaled + 1 end
      return math.min(cap * p + whole * p + scaled, MOST)
    end
    return math.max(cap * p - whole * p - scaled, 0)
  end

  -- carry returns the tokens to count as used of a capacity of cap, so that what is
  -- left of used p-ths of c tokens is left there, at most cap. A debt is kept.
  local function carry(used, q, c, cap)
    local part = fmod(used, q)
    used = (used - part) / q + (part > 0 and 1 or 0)
    return math.max(used + (cap - c), 0)
  end

  -- marked returns the head with another kind.
  local function marked(head, kind) return sub(head, 1, 1) .. string.char(kind) .. sub(head, 3) end

  -- foreign reports whether a head is none of ours.
  local function foreign(head)
    if #head < 26 or byte(head) ~= 1 then return true end
    local kind = byte(head, 2)
    if kind > 6 or kind == 3 or kind == 4 then return true end
    local n, p, cap = read('<ddd', head, 3)
    return not (n >= 1 and p >= 1 and cap >= 1 and 2 * cap * p + n <= MOST
      and n % 1 == 0 and p % 1 == 0 and cap % 1 == 0)
  end

  return {rebase = rebase, carry = carry, marked = marked, foreign = foreign}
end

local allowed, healed, spoiled = verb == 1, 0, nil
local drafts, log, change = nil, nil, nil

-- commit writes an account with cost tokens more used, or, for 0, what was
-- carried over to another limit.
local function commit(key, head, kind, n, at, used, cost, book, heals)
  if kind == 2 then
    log.append(key, head, book, n, cost)
  else
    keep(key, head, kind, n, at, used)
  end
  if heals then healed = healed + 1 end
end

-- To settle several, all are read (i <= 0) before the first is written, so that an
-- error leaves them as they were; and each again when it is its turn, since one
-- may be corrected twice.
for i = verb == 2 and #KEYS > 1 and 1 - #KEYS or 1, #KEYS do
  local k = i > 0 and i or i + #KEYS
  local key, arg = KEYS[k], ARGV[k + 1]
  local head, kind = sub(arg, 1, 26), byte(arg, 2)
  local n, p, cap, cost, extra = read('<ddddd', arg, 3)

  -- The account as it is stored: under own, which is of the kind was with m, q, c.
  local at, used, own, was, m, q, c = now, 0, head, kind, n, p, cap
  local heals, book = false, nil
  local carried = false -- a window or a log that was made from a bucket

  local state = redis.pcall('GET', key)
  if state then
    local good = not state.err
    if good then own = sub(state, 1, 26) end
    if good and own ~= head then
      change = change or changes()
      if change.foreign(own) then
        good = false
        if byte(own) and byte(own) > 1 and byte(own) < 32 then
          return {err = 'RATIONNEWER ' .. key}
        end
      else
        was, m, q, c = byte(own, 2), read('<ddd', own, 3)
        if was > 2 then
          carried, was = true, was - 4
          own = change.marked(own, was)
        end
      end
    end
    if good and was == 2 then
      log = log or logs()
      book = log.open(state, m)
      good = book ~= nil
      if good then
        at, used, heals = book.at, book.total - book.base, book.heals
        carried = carried and book.first == 1
      end
    elseif good then
      good = #state == 42
      if good then
        at, used = read('<dd', state, 27)
        if at - now > ahead then
          heals, at = true, now
        elseif at <= now then
          if was == 0 then
            used = used - m * (now - at)
            if used < 0 then used = 0 end
          elseif floor(at / m) ~= floor(now / m) then
            used = 0
          end
          at = now
        end
      end
    end
    if not (good and at % 1 == 0 and used >= 0 and used <= MOST and used % 1 == 0) then
      spoiled, used, at = spoiled or key, 0, now
      if verb > 0 then call('DEL', key) end
    end
    if used == 0 then -- full, which is the same as none
      own, was, m, q, c, book, heals, carried = head, kind, n, p, cap, nil, false, false
    end
  end

  if verb == 2 and (i <= 0 or spoiled) then
    -- Nothing is corrected, or not yet.
  elseif verb == 2 then
    if extra > at then extra = at end -- the clock was set back
    -- If the window or the entry has gone under the charge's own limit, a credit changes
    -- nothing and a debit is taken now. The limit of the account is checked below.
    local gone = kind == 1 and floor(extra / n) ~= floor(at / n) or kind == 2 and extra <= at - n
    if gone then extra = at end
    if carried then own = change.marked(own, was + 4) end
    if gone and cost <= 0 then
      -- Nothing is corrected.
    elseif was == 2 then
      log = log or logs()
      log.settle(key, own, book or log.start(at, 0), m, 2 * c, cost, extra, carried)
    elseif was == 0 or cost > 0 or floor(extra / m) == floor(at / m) then
      local lowest = 2 * c * q
      if cost < 0 then
        used = math.max(used + cost * q, 0)
      elseif used < lowest then
        used = math.min(used + cost * q, lowest)
      end
      if used > 0 then
        keep(key, own, was, m, at, used)
      elseif state then
        call('DEL', key)
      end
    end
    if heals then healed = healed + 1 end
  else
    local changed = own ~= head
    if changed then -- carry what was used, or what is left, over to the request's limit
      if was == 0 and kind == 0 then
        used = change.rebase(used, q, c, p, cap)
      elseif was == 0 or kind == 0 or carried then
        used, book = math.min(change.carry(used, q, c, cap) * p, MOST), nil
        carried = kind ~= 0
      elseif was ~= kind or m ~= n then
        book = nil
      elseif book then
        book.changed = true
      end
    end
    local pays = cost == 0 or cost * p <= cap * p - used
    if kind == 2 then
      log = log or logs()
      book = book or log.start(at, used)
      local wait = 0
      if not pays and cost <= cap then wait = log.wait(book, n, cap - cost) end
      reply = reply .. write('<dddd', used, at, wait, used > 0 and n - (at - book.last) or 0)
    else
      reply = reply .. write('<dd', used, at)
    end
    if not pays and extra == 0 then allowed = false end
    -- The debit, if the request is allowed; and what was carried over in any case,
    -- since an account that cannot pay would else stay on its old limit.
    if verb == 1 and (pays and cost > 0 or not pays and cost <= cap and (changed or heals)) then
      if not pays then cost = 0 end
      used = used + cost * p
      if carried then head = change.marked(head, kind + 4) end
      if i < #KEYS or spoiled then
        drafts = drafts or {}
        drafts[i] = {head, kind, n, at, used, cost, book, heals}
      elseif allowed or cost == 0 then
        commit(key, head, kind, n, at, used, cost, book, heals)
      end
    end
  end
end

if spoiled then return {err = 'RATIONSPOILED ' .. spoiled} end

for i, draft in pairs(drafts or {}) do
  if allowed or draft[6] == 0 then commit(KEYS[i], unpack(draft, 1, 8)) end
end

if healed > 0 or verb == 2 then reply = reply .. write('<d', healed) end
return reply
