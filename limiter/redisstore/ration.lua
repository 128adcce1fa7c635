-- A batch of requests, one after the other, at one instant of the server's clock.
-- All accounts are read first and written last; in between, each request sees what
-- those before it left. Numbers are integers below 2^53, exact in a double; instants
-- are microseconds since the Unix epoch.
--
-- KEYS     the accounts of the lines, in their order; several may be one
-- ARGV[1]  deadline, ahead, slack
-- ARGV[2]  the limits: head...
-- ARGV[3]  the lines: verb (0 peek, 1 take, 2 settle, 3 reset), number of accounts,
--          number of runs, instant; then for each account 2 * limit + shadow, where
--          limits count from 0 and shadow is 0 or 1; and
--            peek, take  for each run: how many requests, and for each account the
--                        cost of one
--            settle      one run: 1, and for each account the correction and the
--                        instant of what is corrected; the limit is that under which
--                        it was taken
--            reset       one run, of no meaning
-- head     1, kind (0 bucket, 1 window, 2 log), n, p, capacity
-- value    head, at, used                  of a bucket (in p-ths of a token) or of a
--                                          window
--          head, at, {instant, total}...   of a log; totals count from its start
--          Kinds 5 and 6 are a window and a log that were made from a bucket: their
--          next limit gets what is left, until that window ends or the log's first
--          entry has left.
-- reply    clock                           if the deadline has passed; else
--          clock, line..., healed
-- line     0, {used, at}..., waits         of a peek or a take, before it; {used, at,
--                                          reset} of a log. waits: for each run and
--                                          each log the wait of who is refused
--          0                               of a settle or a reset
--          1, length, text                 an error of this line alone
--
-- A bucket gains n p-ths of a token a microsecond; windows and logs are n
-- microseconds long and have p = 1. at is the instant of the latest debit.
-- What is rare comes late, or in functions inside functions: it costs nothing until
-- then.

local call, pcall, write, read = redis.call, redis.pcall, struct.pack, struct.unpack
local byte, sub, floor, fmod, min, max =
  string.byte, string.sub, math.floor, math.fmod, math.min, math.max
local MOST = 9007199254740992

local deadline, ahead, slack = read('<ddd', ARGV[1])
local time = call('TIME')
local clock = time[1] * 1e6 + time[2]
if clock > deadline then return write('<d', clock) end
local now = clock

local limits, heads = {}, {} -- by number and by head
for i = 1, #ARGV[2], 26 do
  local head = sub(ARGV[2], i, i + 25)
  local n, p, cap = read('<ddd', head, 3)
  local limit = {head = head, kind = byte(head, 2), n = n, p = p, cap = cap, units = cap * p}
  limits[#limits + 1] = limit
  heads[head] = limit
end

local fetched -- the values of all keys; false if there is none, or no string
if #KEYS == 1 then
  local value = pcall('GET', KEYS[1])
  fetched = {value}
else
  fetched = call('MGET', unpack(KEYS))
end
local lines = ARGV[3]

-- expiry is the millisecond after an account is full again, or the next. The account
-- is full at an instant by the clock that says it is now.
local function expiry(full, instant)
  return string.format('%.0f', floor((full - instant + clock + slack) / 1000) + 2)
end

-- The fast path: takes and peeks of buckets that are not in shadow, under the limit
-- that they are stored under. At the first sign of anything else, and if the server
-- refuses the first write, it has changed nothing, and what follows decides.
do
  local numbers, count, names, own, at, used = {}, 0, {}, {}, {}, {}
  local these, instants, levels, costs = {}, {}, {}, {}
  local seen, changed, new, plain = {}, {}, {}, true
  local out, place, key = {write('<d', clock)}, 1, 0
  while plain and key < #KEYS do
    local verb, size, runs, instant
    verb, size, runs, instant, place = read('<BHHd', lines, place)
    if slack > 0 then now = instant end
    plain = verb < 2
    out[#out + 1] = '\0'
    for i = 1, size do
      local flags
      flags, place = read('<H', lines, place)
      key = key + 1
      local limit, name = limits[flags / 2 + 1], KEYS[key] -- a shadow's index is no integer
      local a = numbers[name]
      if not limit or limit.kind > 0 or a and own[a] ~= limit then
        plain = false
        break
      end
      if not a then
        a = count + 1
        count, numbers[name], names[a], own[a], at[a], used[a] = a, a, name, limit, -MOST, 0
        local value = fetched[key]
        if not value then
          new[#new + 1] = name
        else
          local head, t, u
          if #value == 42 then head, t, u = read('<c26dd', value) end
          if head ~= limit.head or t % 1 ~= 0
            or not (u >= 0 and u <= MOST and u % 1 == 0) then
            plain = false
            break
          end
          at[a], used[a] = t, u
        end
      end
      local t, u = at[a], used[a]
      if t - now > ahead then
        plain = false
        break
      end
      if t < now then
        t, u = now, u - limit.n * (now - t)
        if u < 0 then u = 0 end
      end
      these[i], instants[i], levels[i] = a, t, u
      out[#out + 1] = write('<dd', u, t)
    end
    if not plain then break end
    for _ = 1, runs do
      local allowed
      allowed, place = read('<d', lines, place)
      for i = 1, size do
        local limit, cost = own[these[i]], nil
        cost, place = read('<d', lines, place)
        costs[i] = cost * limit.p
        if cost > 0 then
          local fits = floor((limit.units - levels[i]) / costs[i])
          if fits < allowed then allowed = fits end
        end
      end
      if verb == 1 and allowed > 0 then
        for i = 1, size do
          if costs[i] > 0 then
            local a = these[i]
            levels[i] = levels[i] + allowed * costs[i]
            if not seen[a] then changed[#changed + 1] = a end
            at[a], used[a], seen[a] = instants[i], levels[i], now
          end
        end
      end
    end
  end
  if plain and #new > 0 and #KEYS > 1 then plain = call('EXISTS', unpack(new)) == 0 end
  if plain then
    local set = pcall
    for i = 1, #changed do
      local a = changed[i]
      local done = set('SET', names[a], write('<c26dd', own[a].head, at[a], used[a]), 'PXAT',
        expiry(at[a] + used[a] / own[a].n, seen[a]))
      if done.err then
        plain = false
        break
      end
      set = call
    end
  end
  if plain then
    out[#out + 1] = write('<d', 0)
    return table.concat(out)
  end
  now = clock
end

-- A single key that is no string has an error for a value by now.
if #KEYS > 1 then
  local absent = {}
  for i = 1, #KEYS do
    if not fetched[i] then absent[#absent + 1] = KEYS[i] end
  end
  if #absent > 0 and call('EXISTS', unpack(absent)) > 0 then
    for i = 1, #KEYS do fetched[i] = fetched[i] or pcall('GET', KEYS[i]) end
  end
end

-- logs returns the functions for rolling logs. A book is what a log has: state as
-- it is stored, with stored entries; more entries; and mend, if the last entry that
-- is stored has another total by now.
local function logs()
  local function entry(book, k)
    if k > book.stored then return book.more[k - book.stored][1], book.more[k - book.stored][2] end
    local instant, total = read('<dd', book.state, 19 + 16 * k)
    if k == book.stored and book.mend then total = book.mend end
    return instant, total
  end

  -- text returns the entries of a book from first on.
  local function text(book, first)
    local upto = book.mend and -17 or -1
    local parts = {first <= book.stored and sub(book.state, 19 + 16 * first, upto) or ''}
    if book.mend and first <= book.stored then
      parts[2] = write('<dd', entry(book, book.stored))
    end
    for k = max(first, book.stored + 1), book.count do
      parts[#parts + 1] = write('<dd', entry(book, k))
    end
    return table.concat(parts)
  end

  -- parse reads a book, or nothing if the state is no log.
  local function parse(state)
    if #state < 34 or (#state - 34) % 16 ~= 0 then return end
    local count = (#state - 34) / 16
    local book = {state = state, stored = count, count = count, more = {}, total = 0}
    book.anchor = read('<d', state, 27)
    book.last = book.anchor
    if count > 0 then book.last, book.total = entry(book, count) end
    if book.anchor % 1 ~= 0 or book.last % 1 ~= 0 or book.total % 1 ~= 0
      or not (book.last <= MOST and book.anchor <= MOST) then return end
    return book
  end

  -- start returns a book in which used tokens were taken at once.
  local function start(at, used)
    local book = {state = '', stored = 0, count = 0, more = {}, total = 0,
      anchor = at, last = at - MOST, rewrite = true, first = 1, base = 0}
    if used > 0 then
      book.more[1], book.count, book.total, book.last = {at, used}, 1, used, at
    end
    return book
  end

  -- back returns the book with all its instants set back.
  local function back(book, by)
    local more = {}
    for k = 1, book.count do
      local instant, total = entry(book, k)
      more[k] = {instant - by, total}
    end
    return {state = '', stored = 0, count = book.count, more = more, total = book.total,
      anchor = book.anchor - by, last = book.last - by, rewrite = true}
  end

  -- open returns the book as it is now under a limit of n microseconds: entries from
  -- first on are live, base is the total before them, and at is its instant. heals
  -- says that it was too far ahead.
  local function open(book, n)
    local at, heals = max(book.anchor, book.last), false
    if at - now > ahead then
      book, at, heals = back(book, at - now), now, true
    elseif at < now then
      at = now
    end
    local first, past = 1, book.count + 1
    while first < past do
      local mid = floor((first + past) / 2)
      if entry(book, mid) <= at - n then first = mid + 1 else past = mid end
    end
    book.first, book.base = first, 0
    if first > 1 then
      local _, before = entry(book, first - 1)
      book.base = before
    end
    return book, at, heals
  end

  -- wait returns the time until at most left tokens are used.
  local function wait(book, at, n, left)
    local low, high = book.first, book.count
    while low < high do
      local mid = floor((low + high) / 2)
      local _, total = entry(book, mid)
      if book.total - total <= left then high = mid else low = mid + 1 end
    end
    return n - (at - entry(book, low))
  end

  -- add adds cost tokens at an instant.
  local function add(book, at, cost)
    book.total = book.total + cost
    if book.count > 0 and book.last == at then
      if book.count > book.stored then
        book.more[book.count - book.stored][2] = book.total
      else
        book.mend = book.total
      end
    else
      book.count, book.last = book.count + 1, at
      book.more[book.count - book.stored] = {at, book.total}
    end
  end

  -- settle returns the book with delta added to the first entry that is not before
  -- taken. If what was taken has left, a credit is nothing and a debit is taken now.
  -- The first entry stays, though empty, if it says until when the log was made from
  -- a bucket. It returns nothing if no entry is left.
  local function settle(book, at, n, lowest, delta, taken, carried)
    if taken <= at - n then
      if delta <= 0 then return book end
      taken = at
    end
    local debit = min(delta, max(lowest - (book.total - book.base), 0))
    local new = {state = '', stored = 0, count = 0, more = {}, total = book.base,
      anchor = at, last = at - MOST, rewrite = true, first = 1, base = book.base}
    local function keep(instant, tokens, keeps)
      if tokens <= 0 and not keeps then return end
      new.total = new.total + max(tokens, 0)
      if tokens > 0 then new.last = instant end
      new.count = new.count + 1
      new.more[new.count] = {instant, new.total}
    end
    if book.base > 0 then
      new.more[1], new.count, new.first = {entry(book, book.first - 1)}, 1, 2
    end
    local before, found = book.base, false
    for k = book.first, book.count do
      local instant, upto = entry(book, k)
      local tokens = upto - before
      before = upto
      if instant >= taken and not found then
        found, tokens = true, tokens + debit
      end
      keep(instant, tokens, carried and k == 1)
    end
    if not found then keep(taken, debit) end
    if new.total > new.base then return new end
  end

  return {entry = entry, text = text, parse = parse, start = start, open = open, wait = wait,
    add = add, settle = settle}
end
local log

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
      return min(cap * p + whole * p + scaled, MOST)
    end
    return max(cap * p - whole * p - scaled, 0)
  end

  -- carry returns the tokens to count as used of a capacity of cap, so that what is
  -- left of used p-ths of c tokens is left there, at most cap. A debt is kept.
  local function carry(used, q, c, cap)
    local part = fmod(used, q)
    used = (used - part) / q + (part > 0 and 1 or 0)
    return max(used + (cap - c), 0)
  end

  -- marked returns the head with another kind.
  local function marked(head, kind) return sub(head, 1, 1) .. string.char(kind) .. sub(head, 3) end

  -- limit returns the limit of a head, and whether it was made from a bucket; or
  -- nothing if the head is none of ours.
  local function limit(head)
    if #head < 26 or byte(head) ~= 1 then return end
    local kind = byte(head, 2)
    if kind > 6 or kind == 3 or kind == 4 then return end
    if kind > 2 then
      head, kind = marked(head, kind - 4), kind - 4
      return heads[head] or limit(head), true
    end
    local n, p, cap = read('<ddd', head, 3)
    if n >= 1 and p >= 1 and cap >= 1 and 2 * cap * p + n <= MOST
      and n % 1 == 0 and p % 1 == 0 and cap % 1 == 0 then
      return {head = head, kind = kind, n = n, p = p, cap = cap}
    end
  end

  -- convert carries an account over to another limit.
  local function convert(v, limit)
    local own = v.limit
    if own.kind == 0 and limit.kind == 0 then
      v.used = rebase(v.used, own.p, own.cap, limit.p, limit.cap)
    elseif own.kind == 0 or limit.kind == 0 or v.carried then
      v.used, v.book = min(carry(v.used, own.p, own.cap, limit.cap) * limit.p, MOST), nil
      v.carried = limit.kind ~= 0
    elseif own.kind ~= limit.kind or own.n ~= limit.n then
      v.book = nil
    elseif v.book then
      v.book.rewrite = true
    end
    v.limit, v.changed = limit, true
    if limit.kind == 2 and not v.book then v.book = log.start(v.at, v.used) end
  end

  return {limit = limit, convert = convert, marked = marked}
end
local change

-- The accounts, by a number that each gets when it is first met: its key; its value
-- until it is parsed; what is stored, or will be: the limit, at and used, or a book;
-- without a limit it is full. spoils has the error of a value that is no account, and
-- stays says that it must stay.
local numbers, count, keys, values = {}, 0, {}, {}
local limitOf, atOf, usedOf, bookOf, carriedOf, firstOf, nowOf = {}, {}, {}, {}, {}, {}, {}
local spoils, stays, exists, dirty = {}, {}, {}, {}
local changed, healed = {}, 0

-- parse reads the value of an account that is no bucket or window under a limit of
-- this call.
local function parse(a, value)
  if not value.err then
    local head = sub(value, 1, 26)
    local limit, carried = heads[head], false
    if not limit then
      change = change or changes()
      limit, carried = change.limit(head)
      if not limit and byte(head) and byte(head) > 1 and byte(head) < 32 then
        spoils[a], stays[a] = 'RATIONNEWER ' .. keys[a], true
        return
      end
    end
    if limit and limit.kind == 2 then
      log = log or logs()
      bookOf[a] = log.parse(value)
      if bookOf[a] then
        limitOf[a], carriedOf[a] = limit, carried
        return
      end
    elseif limit and #value == 42 then
      local at, used = read('<dd', value, 27)
      if at % 1 == 0 and used >= 0 and used <= MOST and used % 1 == 0 then
        limitOf[a], carriedOf[a], atOf[a], usedOf[a] = limit, carried, at, used
        return
      end
    end
  end
  local text = value.err
  if text and not string.find(text, '^%-?WRONGTYPE ') then
    spoils[a], stays[a] = text, true -- it could not be read, which says nothing of it
  else
    spoils[a] = 'RATIONSPOILED ' .. keys[a]
  end
end

-- touch notes that an account is to be written.
local function touch(a)
  nowOf[a] = now
  if not dirty[a] then
    dirty[a] = true
    changed[#changed + 1] = a
  end
end

-- clear makes an account full.
local function clear(a)
  limitOf[a], bookOf[a], carriedOf[a], spoils[a] = nil, nil, nil, nil
  touch(a)
end

-- look returns an account as it is now.
local function look(a, limit)
  local v = {limit = limit, at = now, used = 0}
  local own = limitOf[a]
  if not own then return v end
  local at, used, book, heals = atOf[a], usedOf[a], bookOf[a], false
  if book then
    book, at, heals = log.open(book, own.n)
    used = book.total - book.base
  elseif at - now > ahead then
    heals, at = true, now
  elseif at <= now then
    if own.kind == 0 then
      used = used - own.n * (now - at)
      if used < 0 then used = 0 end
    elseif floor(at / own.n) ~= floor(now / own.n) then
      used = 0
    end
    at = now
  end
  v.at = at
  if used > 0 then -- else it is full, which is the same as none
    v.limit, v.used, v.book, v.heals = own, used, book, heals
    v.carried = carriedOf[a] and (not book or book.first == 1)
  end
  return v
end

-- commit makes an account what v says.
local function commit(a, v)
  if v.used <= 0 then
    limitOf[a], bookOf[a] = nil, nil
  else
    limitOf[a], atOf[a], usedOf[a] = v.limit, v.at, v.used
    bookOf[a], carriedOf[a] = v.book, v.carried
    if v.book then firstOf[a], v.book.anchor = v.book.first, v.at end
  end
  if v.heals then healed, v.heals = healed + 1, false end
  v.changed = false
  touch(a)
end

-- The lines. place and key are how far lines and KEYS have been read. these, limit and
-- shadow are the accounts of a line, their limits under it, and their flags.
local place, key = 1, 0
local out, starts, total = {write('<d', clock)}, {}, 0
local these, limit, shadow, used, views = {}, {}, {}, {}, {}

-- account returns the account of the next key.
local function account()
  key = key + 1
  local name = KEYS[key]
  local a = numbers[name]
  if not a then
    count = count + 1
    a = count
    numbers[name], keys[a], values[a], exists[a] = a, name, fetched[key], fetched[key] and true
  end
  return a
end

-- prepare returns what is used of an account; its instant; and, unless it is a bucket
-- or a window under the limit of the request, the view by which it is changed.
local function prepare(a, l)
  local own = limitOf[a]
  if own == l and l.kind < 2 and not carriedOf[a] and atOf[a] - now <= ahead then
    local at, u = atOf[a], usedOf[a]
    if at >= now then return u, at end
    if l.kind == 0 then
      u = u - l.n * (now - at)
      if u < 0 then u = 0 end
    elseif floor(at / l.n) ~= floor(now / l.n) then
      u = 0
    end
    return u, now
  elseif not own and l.kind < 2 then
    return 0, now
  end
  local v = look(a, l)
  if v.limit ~= l then
    change = change or changes()
    if l.kind == 2 then log = log or logs() end
    change.convert(v, l)
  elseif l.kind == 2 and not v.book then
    log = log or logs()
    v.book = log.start(v.at, 0)
  end
  return v.used, v.at, v
end

-- decide decides a line of peeks or takes of so many accounts.
local function decide(verb, size, runs)
  local at = now
  for i = 1, size do
    local v
    used[i], at, v = prepare(these[i], limit[i])
    views[i] = v or at
    if v and v.book then
      out[#out + 1] = write('<ddd', used[i], at,
        used[i] > 0 and limit[i].n - (at - v.book.last) or 0)
    else
      out[#out + 1] = write('<dd', used[i], at)
    end
  end
  for _ = 1, runs do
    local requests
    requests, place = read('<d', lines, place)
    local costs, allowed = {}, requests
    for i = 1, size do
      local cost
      cost, place = read('<d', lines, place)
      costs[i] = cost
      if cost > 0 and not shadow[i] then
        local l = limit[i]
        local fits = floor((l.cap * l.p - used[i]) / (cost * l.p))
        if fits < allowed then allowed = fits > 0 and fits or 0 end
      end
    end
    for i = 1, size do
      local a, l, v, cost, pays = these[i], limit[i], views[i], costs[i], allowed
      if shadow[i] and cost > 0 then
        pays = min(allowed, max(floor((l.cap * l.p - used[i]) / (cost * l.p)), 0))
      end
      local plain = type(v) == 'number'
      local poor = not plain and cost > 0 and cost <= l.cap and
        (verb == 0 and cost * l.p > l.cap * l.p - used[i] or
         verb == 1 and requests > pays and (pays + 1) * cost * l.p > l.cap * l.p - used[i])
      if verb == 1 and pays > 0 and cost > 0 then
        used[i] = used[i] + pays * cost * l.p
        if plain then
          limitOf[a], atOf[a], usedOf[a], carriedOf[a] = l, v, used[i], nil
          touch(a)
        else
          v.used = used[i]
          if v.book then log.add(v.book, v.at, pays * cost) end
          commit(a, v)
        end
      elseif verb == 1 and poor and (v.changed or v.heals) then
        -- What was carried over, since an account that cannot pay would else stay on
        -- its old limit.
        commit(a, v)
      end
      if not plain and v.book then
        out[#out + 1] = write('<d', poor and log.wait(v.book, v.at, l.n, l.cap - cost) or 0)
      end
    end
  end
end

-- settle corrects an account. If the window or the entry has gone under the limit of
-- the charge, a credit changes nothing and a debit is taken now. The limit of the
-- account is checked after.
local function settle(a, limit, delta, taken)
  local v = look(a, limit)
  local own = v.limit
  taken = min(taken, v.at) -- the clock was set back
  local gone = limit.kind == 1 and floor(taken / limit.n) ~= floor(v.at / limit.n)
    or limit.kind == 2 and taken <= v.at - limit.n
  if gone then taken = v.at end
  if gone and delta <= 0 then return end
  local lowest = 2 * own.cap * own.p
  if own.kind == 2 then
    log = log or logs()
    local book = v.book or log.start(v.at, 0)
    v.book = log.settle(book, v.at, own.n, 2 * own.cap, delta, taken, v.carried)
    if v.book == book then return end
    v.used = v.book and v.book.total - v.book.base or 0
  elseif own.kind == 0 or delta > 0 or floor(taken / own.n) == floor(v.at / own.n) then
    if delta < 0 then
      v.used = max(v.used + delta * own.p, 0)
    elseif v.used < lowest then
      v.used = min(v.used + delta * own.p, lowest)
    end
  else
    return
  end
  commit(a, v)
end

while key < #KEYS do
  local verb, size, runs, instant, flags, wrong
  verb, size, runs, instant, place = read('<BHHd', lines, place)
  if slack > 0 then now = instant end
  total = total + 1
  starts[total] = key + 1
  for i = 1, size do
    flags, place = read('<H', lines, place)
    local a, l = account(), limits[floor(flags / 2) + 1]
    these[i], limit[i], shadow[i] = a, l, flags % 2 == 1
    if verb < 3 then
      local value = values[a]
      if value then
        values[a] = false
        local good = false
        if #value == 42 then -- most are buckets under the limit of the request
          local head, at, u = read('<c26dd', value)
          if head == l.head and l.kind < 2 and u >= 0 and u <= MOST and at % 1 == 0 and u % 1 == 0 then
            limitOf[a], atOf[a], usedOf[a], good = l, at, u, true
          end
        end
        if not good then parse(a, value) end
      end
      wrong = wrong or spoils[a]
    end
  end
  starts[-total] = #out + 1
  if wrong then
    out[#out + 1] = write('<BH', 1, #wrong) .. wrong
    for i = 1, size do
      local a = these[i]
      if verb > 0 and spoils[a] and not stays[a] then clear(a) end
    end
    place = place + runs * (verb == 2 and 8 + 16 * size or 8 + 8 * size)
  else
    out[#out + 1] = '\0'
    if verb == 2 then
      place = place + 8
      for i = 1, size do
        local delta, taken
        delta, taken, place = read('<dd', lines, place)
        settle(these[i], limit[i], delta, taken)
      end
    elseif verb == 3 then
      place = place + runs * (8 + 8 * size)
      for i = 1, size do
        values[these[i]] = false
        clear(these[i])
      end
    else
      decide(verb, size, runs)
    end
  end
end

-- record writes a log. One entry that has left stays, for the total before the first
-- that is live.
local function record(a, head)
  local book, first, n = bookOf[a], firstOf[a], limitOf[a].n
  if book.rewrite or first - 2 > book.count - first then
    return pcall('SET', keys[a], head .. write('<d', max(book.anchor, book.last))
      .. log.text(book, max(first - 1, 1)), 'PXAT', expiry(book.last + n, nowOf[a]))
  end
  -- First what changes nothing, in case that the user may not.
  local done
  if book.count > book.stored or slack > 0 then
    done = pcall('PEXPIREAT', keys[a], expiry(book.last + n, nowOf[a]))
    if type(done) == 'table' then return done end
  end
  if book.mend then
    done = pcall('SETRANGE', keys[a], #book.state - 8, write('<d', book.mend))
    if type(done) == 'table' then return done end
  end
  if book.count > book.stored then
    done = pcall('APPEND', keys[a], log.text(book, book.stored + 1))
  end
  return done
end

-- save writes an account, and returns what the server says.
local function save(a)
  local limit = limitOf[a]
  if not limit then return exists[a] and pcall('DEL', keys[a]) end
  local head = limit.head
  if carriedOf[a] then
    change = change or changes()
    head = change.marked(head, limit.kind + 4)
  end
  if bookOf[a] then return record(a, head) end
  local at, used = atOf[a], usedOf[a]
  local full = at + used / limit.n
  if limit.kind == 1 then full = (floor(at / limit.n) + 1) * limit.n end
  return pcall('SET', keys[a], write('<c26dd', head, at, used), 'PXAT', expiry(full, nowOf[a]))
end

-- A server that refuses the first write refuses it for what it is short of, and has
-- changed nothing: nothing else is written then. If it is a replica, that is the
-- answer to all, so that the client looks for the master.
local written, refused, failed = false, nil, nil
for i = 1, #changed do
  local a = changed[i]
  local done = not refused and save(a)
  local text = refused or type(done) == 'table' and done.err
  if text then
    local code = not written and string.match(text, '^%-?(%u+) ')
    if code == 'READONLY' then return done end
    if code == 'OOM' or code == 'MISCONF' or code == 'NOREPLICAS' then refused = text end
    failed = failed or {}
    failed[keys[a]] = text
  elseif done then
    written = true
  end
end

-- A line of which an account could not be written has failed.
if failed then
  starts[total + 1], starts[-total - 1] = #KEYS + 1, #out + 1
  for i = 1, total do
    for k = starts[i], starts[i + 1] - 1 do
      local text = failed[KEYS[k]]
      if text then
        for part = starts[-i], starts[-i - 1] - 1 do out[part] = '' end
        out[starts[-i]] = write('<BH', 1, #text) .. text
      end
    end
  end
end

out[#out + 1] = write('<d', healed)
return table.concat(out)
