package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// readReply reads one reply.
func readReply(conn io.Reader) (any, error) { return reply(bufio.NewReader(conn)) }

func reply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, fmt.Errorf("no reply: %q", line)
	}
	rest := line[1 : len(line)-2]
	switch line[0] {
	case '+':
		return rest, nil
	case '-':
		return nil, errors.New(rest)
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	case '$', '*':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return nil, err
		}
		if line[0] == '*' {
			return list(r, n)
		}
		text := make([]byte, n+2)
		_, err = io.ReadFull(r, text)
		return string(text[:n]), err
	default:
		return nil, fmt.Errorf("no reply: %q", line)
	}
}

func list(r *bufio.Reader, n int) (any, error) {
	items := make([]any, n)
	for i := range items {
		item, err := reply(r)
		if err != nil {
			return nil, err
		}
		items[i] = item
	}
	return items, nil
}
