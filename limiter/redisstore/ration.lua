-- A batch of requests, one after the other, at one instant of the server's clock.
-- All accounts are read before any is written; in between, each request sees what
-- those before it left. Numbers are integers below 2^53, exact in a double; instants
-- are microseconds since the Unix epoch.
--
-- KEYS     the accounts of the lines, in their order; several may be one
-- ARGV[1]  deadline, ahead, slack; and the numbers of the keys of which the whole
--          value is not read: those under a rolling log, and of resets
-- ARGV[2]  the limits: n, p, capacity, length of the head, head
-- ARGV[3]  the lines: verb (0 peek, 1 take, 2 settle, 3 reset), number of accounts,
--          number of runs, instant; then for each account 2 * limit + shadow, where
--          limits count from 0 and shadow is 0 or 1; and
--            peek, take  for each run: how many requests, and for each account the
--                        cost of one
--            settle      one run: 1, and for each account the correction and the
--                        instant of what is corrected; the limit is that under which
--                        it was taken
--            reset       one run, of no meaning
-- head     2, kind (0 bucket, 1 window, 2 log), and as uvarints n, p, capacity (0 if
--          it is n)
-- value    head, at, used                  of a bucket (in p-ths of a token) or of a
--                                          window
--          2, 2, {instant, sum}..., total, at, last, entries, room, low, empty,
--          head, length of the head              of a log; see logs
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
local byte, sub, format, floor, fmod, min, max =
  string.byte, string.sub, string.format, math.floor, math.fmod, math.min, math.max
local MOST = 9007199254740992

local deadline, ahead, slack = read('<ddd', ARGV[1])
local time = call('TIME')
local clock = time[1] * 1e6 + time[2]
if clock > deadline then return write('<d', clock) end
local now = clock

local limits, heads = {}, {} -- by number and by head
do
  local at, text, n, p, cap, head = 1, ARGV[2], nil, nil, nil, nil
  while at <= #text do
    n, p, cap, head, at = read('<dddBc0', text, at)
    local limit = {head = head, size = #head, kind = byte(head, 2), n = n, p = p, cap = cap,
      units = cap * p}
    limits[#limits + 1] = limit
    heads[head] = limit
  end
end

-- TAIL is enough of the end of a log to go on, and the whole of any other account.
local TAIL = 84
local fetched -- the values of all keys; false if there is none, or no string
local ends = #ARGV[1] > 24 and {} -- by key, true if only the end was read
if not ends then
  if #KEYS == 1 then
    local value = pcall('GET', KEYS[1])
    fetched = {value}
  else
    fetched = call('MGET', unpack(KEYS))
  end
else
  fetched = {}
  for i = 25, #ARGV[1], 2 do
    local k = read('<H', ARGV[1], i)
    local value = pcall('GETRANGE', KEYS[k], -TAIL, -1)
    fetched[k], ends[k] = value ~= '' and value, #value == TAIL
  end
  local names, whole = {}, {}
  for k = 1, #KEYS do
    if fetched[k] == nil then names[#names + 1], whole[#whole + 1] = KEYS[k], k end
  end
  if #names > 0 then
    local values = call('MGET', unpack(names))
    for i = 1, #names do fetched[whole[i]] = values[i] end
  end
end
local lines = ARGV[3]

-- expiry is the millisecond after an account is full again, or the next. The account
-- is full at an instant by the clock that says it is now.
local function expiry(full, instant)
  return format('%.0f', floor((full - instant + clock + slack) / 1000) + 2)
end

-- The fast path: takes and peeks of buckets that are not in shadow, under the limit
-- that they are stored under. At the first sign of anything else, and if the server
-- refuses the first write, it has changed nothing, and what follows decides.
do
  local numbers, count, names, own, at, used = {}, 0, {}, {}, {}, {}
  local these, instants, levels, costs = {}, {}, {}, {}
  local seen, changed, new, plain = {}, {}, {}, not ends
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
          local size, t, u = limit.size, nil, -1
          if #value == size + 16 and sub(value, 1, size) == limit.head then
            t, u = read('<dd', value, size + 1)
          end
          if not (u >= 0 and u <= MOST and u % 1 == 0 and t % 1 == 0) then
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
      local done = set('SET', names[a], own[a].head .. write('<dd', at[a], used[a]), 'PXAT',
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

-- A single key of which the value was read has an error for one if it is no string.
if ends or #KEYS > 1 then
  local absent = {}
  for i = 1, #KEYS do
    if not fetched[i] then absent[#absent + 1] = KEYS[i] end
  end
  if #absent > 0 and call('EXISTS', unpack(absent)) > 0 then
    for i = 1, #KEYS do
      if not fetched[i] then fetched[i] = pcall('GET', KEYS[i]) end
    end
  end
end

-- What the next two functions return, once it is needed.
local log, change

-- logs returns the functions for rolling logs.
--
-- The entries are a Fenwick tree, so that a correction changes few of them: entry k has
-- its instant, and the sum of the tokens of the last span(k) entries up to itself, where
-- span(k) is the largest power of two that divides k. An entry that was corrected to
-- nothing keeps its instant, and stays for some time; but the last entry has tokens.
--
-- A book is a log of which entries are read when they are needed. On the server it has
-- room for entries, in value or under key, of which stored are good; ats and sums are
-- those that were read or changed, which dirty says. count is how many there are, total
-- what all of them have, and empty at least how many have nothing, none of them before
-- low. anchor is the latest instant, and last that of the last entry. If shift is not 0,
-- all instants are later in ats and on the server by that much. first and base are the
-- first entry that is live, and the tokens of those before it, of which gone can be
-- dropped. rewrite says that all is to be written.
local function logs()
  local rep, concat = string.rep, table.concat

  local function span(k) return bit.band(k, -k) end

  local function bytes(book, first, last)
    if last < first then return '' end
    local from, to = 16 * first - 14, 16 * last + 1
    return book.value and sub(book.value, from + 1, to + 1)
      or call('GETRANGE', book.key, format('%d', from), format('%d', to))
  end

  local function entry(book, k)
    if not book.ats[k] then
      local text = bytes(book, k, k)
      local instant, sum = MOST, 0
      if #text == 16 then instant, sum = read('<dd', text) end
      book.ats[k], book.sums[k] = instant, sum
    end
    return book.ats[k] - book.shift, book.sums[k]
  end

  local function put(book, k, instant, sum)
    book.ats[k], book.sums[k], book.dirty[k] = instant + book.shift, sum, true
  end

  -- below returns what the sum of entry k has besides the entries after k - unit.
  local function below(book, k, unit)
    local sum, step, size = 0, unit, span(k)
    while step < size do
      local _, part = entry(book, k - step)
      sum, step = sum + part, step * 2
    end
    return sum
  end

  -- tokens returns what the entries after k - unit up to k have.
  local function tokens(book, k, unit)
    local _, sum = entry(book, k)
    return sum - below(book, k, unit)
  end

  -- split returns the number of entries that are at an instant or before, and together
  -- with those before them have at most so many tokens; and their tokens.
  local function split(book, instant, most)
    local k, sum, step = 0, 0, 1
    while 2 * step <= book.count do step = 2 * step end
    while step >= 1 do
      if k + step <= book.count then
        local at, more = entry(book, k + step)
        if at <= instant and sum + more <= most then k, sum = k + step, sum + more end
      end
      step = step / 2
    end
    return k, sum
  end

  -- raise adds tokens to an entry, and to the sums in which it is.
  local function raise(book, k, more)
    book.total = book.total + more
    while k <= book.count do
      local instant, sum = entry(book, k)
      put(book, k, instant, sum + more)
      k = k + span(k)
    end
  end

  -- add adds tokens at an instant that is not before any entry.
  local function add(book, at, cost)
    local k = book.count
    if book.last == at then
      raise(book, k, cost)
    else
      k = k + 1
      book.count, book.total = k, book.total + cost
      put(book, k, at, cost + below(book, k, 1))
    end
    book.last = at
  end

  local function new(at)
    return {ats = {}, sums = {}, dirty = {}, shift = 0, stored = 0, room = 0, count = 0,
      total = 0, low = 1, empty = 0, anchor = at, last = at - MOST, first = 1, base = 0,
      rewrite = true}
  end

  -- start returns a book in which used tokens were taken at once.
  local function start(at, used)
    local book = new(at)
    if used > 0 then add(book, at, used) end
    return book
  end

  -- text returns the entries after the first ones.
  local function text(book, past)
    local raw, parts = bytes(book, past + 1, book.stored), {}
    local place = past + 1 -- the next entry
    for k = past + 1, book.count do
      if book.dirty[k] then
        parts[#parts + 1] = sub(raw, 16 * (place - past) - 15, 16 * (k - past - 1))
        parts[#parts + 1] = write('<dd', book.ats[k], book.sums[k])
        place = k + 1
      end
    end
    parts[#parts + 1] = sub(raw, 16 * (place - past) - 15)
    return concat(parts)
  end

  -- pack returns the entries after past as text, without those without tokens, and how
  -- many entries there are then; and changes nothing. The very first stays, though
  -- empty, if it says until when the log was made from a bucket.
  local function pack(book, past, carried)
    local raw, sums, made, flat, n = text(book, past), {}, {}, {}, past
    local some, parts = 64, {} -- entries at a time
    local function sumOf(list, k)
      if list[k] then return list[k] end
      local _, sum = entry(book, k) -- before those that are packed: it stays
      return sum
    end
    for before = past, book.count - 1, some do
      local size = min(some, book.count - before)
      local part = {read('<' .. rep('d', 2 * size), raw, 16 * (before - past) + 1)}
      for i = 1, size do
        local k, sum = before + i, part[2 * i]
        sums[k] = sum
        local step, upto = 1, span(k)
        while step < upto do sum, step = sum - sumOf(sums, k - step), step * 2 end
        if sum > 0 or carried and k == 1 then
          n, step = n + 1, 1
          upto = span(n)
          while step < upto do sum, step = sum + sumOf(made, n - step), step * 2 end
          made[n], flat[#flat + 1], flat[#flat + 2] = sum, part[2 * i - 1] - book.shift, sum
        end
      end
    end
    for i = 1, #flat, 2 * some do
      local size = min(2 * some, #flat - i + 1)
      parts[#parts + 1] = write('<' .. rep('d', size), unpack(flat, i, i + size - 1))
    end
    return concat(parts), n
  end

  -- drop prepares a book to be written without most of the first entries, that are
  -- gone, and returns how many go. It changes the sums of the last entries of blocks,
  -- of which there are few.
  local function drop(book, gone)
    local block = 1 -- more than a quarter of gone
    while 4 * block <= gone do block = 2 * block end
    local past, sums = gone - gone % block, {}
    for k = block, book.count, block do
      local sum = tokens(book, k, block)
      if k <= past then book.total = book.total - sum else sums[k] = sum end
    end
    for k = past + block, book.count, block do
      local sum, step, size = sums[k], block, span(k - past)
      while step < size do sum, step = sum + sums[k - step], step * 2 end
      sums[k] = sum
      put(book, k, entry(book, k), sum)
    end
    return past
  end

  -- parse reads a book from a value, or from the end of the one under key, and returns it
  -- with its limit, and whether it was made from a bucket; or nothing if it is no log.
  local function parse(key, text, ended)
    local size = byte(text, -1)
    local from = size and #text - size - 40 -- where total is
    if not size or size > 26 or from < 17 then return end
    local limit, carried = change.limit(sub(text, -1 - size))
    if not limit or limit.kind ~= 2 or limit.size ~= size then return end
    local total, anchor, last, count, room, low, empty = read('<dddI4I4I4I4', text, from)
    if total % 1 ~= 0 or total < 0 or total > MOST or anchor % 1 ~= 0 or last % 1 ~= 0
      or not (last <= anchor and anchor <= MOST)
      or count < 1 or count > room or low < 1 or low > count + 1
      or not ended and (sub(text, 1, 2) ~= '\2\2' or from ~= 16 * room + 3) then return end
    local book = {key = key, value = not ended and text, ats = {}, sums = {}, dirty = {},
      shift = 0, stored = count, room = room, count = count, total = total, low = low,
      empty = empty, anchor = anchor, last = last, size = size, expires = last}
    if count == room then book.ats[count], book.sums[count] = read('<dd', text, from - 16) end
    return book, limit, carried
  end

  -- whole reports whether the value of a book of which the end was read is as long as it
  -- says. It is asked before the book may be written.
  local function whole(book)
    if book.value or not book.key or book.checked then return true end
    local length = 16 * book.room + 43 + book.size
    book.checked = #call('GETRANGE', book.key, format('%d', length - 1), format('%d', length)) == 1
    return book.checked
  end

  -- open returns the book as it is now under a limit of n microseconds, and its instant.
  -- heals says that it was too far ahead.
  local function open(book, n)
    local at, heals = book.anchor, false
    if at - now > ahead then
      local by, copy = at - now, {}
      for name, value in pairs(book) do copy[name] = value end
      book, at, heals = copy, now, true
      book.shift, book.last = book.shift + by, book.last - by
    elseif at < now then
      at = now
    end
    if book.opened ~= at - n then
      local gone
      gone, book.base = split(book, at - n, math.huge)
      book.first, book.opened = gone + 1, at - n
    end
    return book, at, heals
  end

  -- sound reports whether what an open book says is possible. Its entries are not all
  -- read, so a damaged value can look like a log.
  local function sound(book, at, n)
    local used = book.total - book.base
    return used % 1 == 0 and used >= 0 and used <= MOST and (used == 0 or book.last > at - n)
  end

  -- wait returns the time until at most left tokens are used.
  local function wait(book, at, n, left)
    local k = split(book, MOST, book.total - left - 1)
    local rest = n - (at - entry(book, k + 1))
    return rest > 0 and rest <= n and rest % 1 == 0 and rest or n -- else it is damaged
  end

  -- settle adds delta to the first entry with tokens that is not before taken.
  local function settle(book, lowest, delta, taken)
    local debit = min(delta, max(lowest - (book.total - book.base), 0))
    local _, sum = split(book, taken - 1, math.huge)
    local k = split(book, MOST, sum) + 1
    if k <= book.count then
      local has = tokens(book, k, 1)
      raise(book, k, max(debit, -has))
      if has + debit > 0 then return end
      book.low, book.empty = book.empty > 0 and min(book.low, k) or k, book.empty + 1
      if k == book.count and book.total > book.base then
        k = split(book, MOST, book.total - 1) + 1
        book.last = entry(book, k)
        for i = k + 1, book.count do
          book.ats[i], book.sums[i], book.dirty[i] = nil, nil, nil
        end
        book.low, book.empty = min(book.low, k + 1), max(book.empty - (book.count - k), 0)
        book.count, book.stored = k, min(book.stored, k)
      end
    elseif debit > 0 then
      add(book, taken, debit)
    end
  end

  -- keep returns a book that is to be written, and whose latest instant is at.
  local function keep(book, at, n, carried)
    if book.shift ~= 0 then
      local entries, count = pack(book, 0, carried)
      book.value, book.stored, book.room, book.count = '\2\2' .. entries, count, count, count
      book.ats, book.sums, book.dirty, book.shift = {}, {}, {}, 0
      book.empty, book.low, book.rewrite = 0, 0, true
      local gone
      gone, book.base = split(book, at - n, math.huge)
      book.first, book.opened = gone + 1, at - n
    end
    book.anchor, book.gone = at, book.first - 1
    return book
  end

  -- save writes a book, and returns what the server says.
  local function save(book, key, head, expires, carried)
    local count, room, low, empty, past = book.count, book.room, book.low, book.empty, 0
    local function foot()
      return write('<dddI4I4I4I4', book.total, book.anchor, book.last, count, room, low, empty)
        .. head .. string.char(#head)
    end
    if 2 * book.gone > count then past = drop(book, book.gone) end
    if book.rewrite or past > 0 or book.size ~= #head or room > 2 * count + 64 then
      local entries = text(book, past)
      count, low = count - past, max(low - past, 1)
      room, empty = count, min(empty, count)
      return pcall('SET', key, '\2\2' .. entries .. foot(), 'PXAT', expires)
    end
    -- First what changes nothing, in case that the user may not.
    local done
    if book.last ~= book.expires or slack > 0 then
      done = pcall('PEXPIREAT', key, expires)
      if type(done) == 'table' then return done end
    end
    local from, entries = room + 1, nil -- the entries that are written at once
    if empty > 32 and 2 * empty > count - low then
      from, empty = low, 0
      entries, count = pack(book, low - 1, carried)
    else
      if count >= room and book.dirty[room] then from = room end
      local parts = {}
      for k = from, count do parts[#parts + 1] = write('<dd', book.ats[k], book.sums[k]) end
      entries = concat(parts)
    end
    for k in pairs(book.dirty) do
      if k < from then
        done = pcall('SETRANGE', key, format('%d', 16 * k - 14),
          write('<dd', book.ats[k], book.sums[k]))
        if type(done) == 'table' then return done end
      end
    end
    if count < room and entries ~= '' then
      done = pcall('SETRANGE', key, format('%d', 16 * from - 14), entries)
      if type(done) == 'table' then return done end
      entries = ''
    end
    room = max(room, count)
    return pcall('SETRANGE', key, format('%d', 16 * (entries == '' and room + 1 or from) - 14),
      entries .. foot())
  end

  return {parse = parse, start = start, open = open, sound = sound, whole = whole, wait = wait,
    add = add, settle = settle, keep = keep, save = save}
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

  -- number reads a uvarint, and returns it and the place after it; or nothing.
  local function number(text, place)
    local n, unit = 0, 1
    for i = place, place + 7 do
      local b = byte(text, i)
      if not b then return end
      n, unit = n + b % 128 * unit, unit * 128
      if b < 128 then return n, i + 1 end
    end
  end

  -- limit returns the limit of the head with which a text begins, and whether it was
  -- made from a bucket; or nothing if there is none.
  local function limit(text)
    local kind = byte(text, 2)
    if byte(text) ~= 2 or not kind or kind > 6 or kind == 3 or kind == 4 then return end
    if kind > 2 then return limit(marked(text, kind - 4)), true end
    local n, p, cap, place
    n, place = number(text, 3)
    if n then p, place = number(text, place) end
    if p then cap, place = number(text, place) end
    if not cap then return end
    if cap == 0 then cap = n end
    if n < 1 or p < 1 or 2 * cap * p + n > MOST then return end
    local head = sub(text, 1, place - 1)
    return heads[head] or {head = head, size = place - 1, kind = kind, n = n, p = p, cap = cap}
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
    end
    v.limit, v.changed = limit, true
    if limit.kind == 2 and not v.book then v.book = log.start(v.at, v.used) end
  end

  return {limit = limit, convert = convert, marked = marked}
end

-- The accounts, by a number that each gets when it is first met: its key; its value, or
-- the end of it, until it is parsed; what is stored, or will be: the limit, at and used,
-- or a book; without a limit it is full. spoils has the error of a value that is no account, and
-- stays says that it must stay.
local numbers, count, keys, values, ended = {}, 0, {}, {}, {}
local limitOf, atOf, usedOf, bookOf, carriedOf, nowOf = {}, {}, {}, {}, {}, {}
local spoils, stays, exists, dirty = {}, {}, {}, {}
local changed, healed = {}, 0

-- parse reads the value of an account that is no bucket or window under a limit of
-- this call.
local function parse(a, value)
  if not value.err then
    change, log = change or changes(), log or logs()
    local book, limit, carried = log.parse(keys[a], value, ended[a])
    if not book and ended[a] then
      value = pcall('GET', keys[a])
      ended[a] = false
      return parse(a, value)
    end
    if book then
      local opened, at = log.open(book, limit.n)
      if log.sound(opened, at, limit.n) then
        limitOf[a], carriedOf[a], bookOf[a] = limit, carried, book
      else
        spoils[a] = 'RATIONSPOILED ' .. keys[a]
      end
      return
    end
    local version = byte(value)
    if version and version > 2 and version < 32 then
      spoils[a], stays[a] = 'RATIONNEWER ' .. keys[a], true
      return
    end
    limit, carried = change.limit(value)
    if limit and limit.kind < 2 and #value == limit.size + 16 then
      local at, used = read('<dd', value, limit.size + 1)
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
    if v.book then v.book = log.keep(v.book, v.at, v.limit.n, v.carried) end
    bookOf[a], carriedOf[a] = v.book, v.carried
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
    ended[a] = ends and ends[key]
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
    if taken <= v.at - own.n then
      if delta <= 0 then return end
      taken = v.at
    end
    log = log or logs()
    v.book = v.book or log.start(v.at, 0)
    log.settle(v.book, lowest, delta, taken)
    if not log.sound(v.book, v.at, own.n) then return clear(a) end -- it was damaged
    v.used = v.book.total - v.book.base
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
        if #value == l.size + 16 and l.kind < 2 and sub(value, 1, l.size) == l.head then
          -- Most are buckets under the limit of the request.
          local at, u = read('<dd', value, l.size + 1)
          if u >= 0 and u <= MOST and at % 1 == 0 and u % 1 == 0 then
            limitOf[a], atOf[a], usedOf[a], good = l, at, u, true
          end
        end
        if not good then parse(a, value) end
      end
      if verb > 0 and bookOf[a] and not log.whole(bookOf[a]) then
        limitOf[a], bookOf[a], spoils[a] = nil, nil, 'RATIONSPOILED ' .. keys[a]
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

-- save writes an account, and returns what the server says.
local function save(a)
  local limit = limitOf[a]
  if not limit then return exists[a] and pcall('DEL', keys[a]) end
  local head = limit.head
  if carriedOf[a] then
    change = change or changes()
    head = change.marked(head, limit.kind + 4)
  end
  if bookOf[a] then
    local expires = expiry(bookOf[a].last + limit.n, nowOf[a])
    return log.save(bookOf[a], keys[a], head, expires, carriedOf[a])
  end
  local at, used = atOf[a], usedOf[a]
  local full = at + used / limit.n
  if limit.kind == 1 then full = (floor(at / limit.n) + 1) * limit.n end
  return pcall('SET', keys[a], head .. write('<dd', at, used), 'PXAT', expiry(full, nowOf[a]))
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
