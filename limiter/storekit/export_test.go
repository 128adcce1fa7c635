package storekit

// Decode reports whether b is a stored account, and returns it stored again and the
// whole tokens that it has left.
func Decode(b []byte) (again []byte, left, capacity int64, err error) {
	s, err := decode(b)
	if err != nil {
		return nil, 0, 0, err
	}
	left = s.account.Limit.Remaining(s.account.Used(s.latest))
	return encode(s.limit, &s.account, s.latest), left, s.limit.Capacity(), nil
}
