// Package imports_test holds the arrows between the packages of this module.
package imports_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/ration-go/ration/"

// An arrow says what a package may import.
type arrow struct {
	from   string
	to     []string
	reason string
}

// arrows say which packages of this module a package may import, and why no
// other. "internal" is all below it but internal/lab, which is for tests. Each
// public package has one.
var arrows = []arrow{
	{"internal/account", nil, "the arithmetic is tested alone"},
	{"internal/instant", nil, "the arithmetic of instants is tested alone"},
	{"internal/callerkey", nil, "a name that limiter and keying share"},
	{"internal/breaker", nil, "when to ask is tested alone"},
	{"internal/kind", nil, "names that limiter and keying share"},
	{"internal/keytext", []string{"internal/kind", "limiter"}, "the encoding of keys is tested alone"},
	{"internal/misuse", nil, "what is noticed is tested alone"},
	{"internal/routes", nil, "what routes look like is tested alone"},
	{"internal/rpcstatus", []string{"limiter"}, "what refused calls are told is tested alone"},
	{"internal/pick", []string{"internal/account", "limiter"}, "all stores decide alike"},
	{"internal/lab/oracle", []string{"limiter"},
		"the oracle shares no arithmetic with what it judges"},
	{"internal/lab/model", []string{"limiter", "internal/lab/oracle"},
		"streams of requests are the same for every store"},
	{"limiter", []string{"internal"}, "the core knows neither stores nor transports"},
	{"limiter/memstore", []string{"limiter", "limiter/storekit", "internal"},
		"a store depends on the contract alone"},
	{"limiter/redisstore", []string{"limiter", "limiter/storekit", "internal"},
		"a store depends on the contract alone"},
	{"limiter/resilient", []string{"limiter", "limiter/storekit", "internal"},
		"it stands in front of any stores"},
	{"limiter/storekit", []string{"limiter", "internal"}, "a store depends on the contract alone"},
	{"limiter/storetest", []string{"limiter", "limiter/storekit", "internal", "internal/lab/oracle"},
		"it tests any store"},
	{"limiter/metrics", []string{"limiter", "limiter/storekit", "internal"},
		"metrics observe every limiter"},
	{"limiter/denylog", []string{"limiter"}, "an observer sees what anybody's sees"},
	{"limiter/topcallers", []string{"limiter"}, "an observer sees what anybody's sees"},
	{"keying", []string{"limiter", "internal"},
		"who calls is found out before any adapter, and without one"},
	{"keying/chiroute", []string{"keying", "limiter", "internal"},
		"a router's pattern is all it knows"},
	{"middleware", append([]string{"keying", "limiter"}, adapters...),
		"net/http users build neither a router's, nor gRPC's, nor a store's module, and what " +
			"an adapter needs is exported"},
	{"grpcinterceptor", append([]string{"keying", "limiter"}, adapters...),
		"gRPC users build no HTTP adapter and no store, and what an adapter needs is exported"},
}

// adapters may import no other internal packages, so that somebody else can write
// one for a third transport.
var adapters = []string{
	"internal/account", "internal/misuse", "internal/routes", "internal/rpcstatus",
}

// owners say which package alone imports a module of others, and why.
var owners = []struct{ module, owner, reason string }{
	{"github.com/felixge/httpsnoop", "middleware", "it wraps what only net/http has"},
	{"github.com/go-chi/chi/v5", "keying/chiroute", "a service without chi does not build it"},
	{"google.golang.org/grpc", "grpcinterceptor", "a service without gRPC does not build it"},
	{"google.golang.org/genproto/googleapis/rpc", "grpcinterceptor",
		"the details of a gRPC status are gRPC's"},
	{"google.golang.org/protobuf", "grpcinterceptor", "the details of a gRPC status are gRPC's"},
	{"github.com/prometheus/client_golang", "limiter/metrics",
		"a service without Prometheus does not build it"},
	{"github.com/redis/go-redis/v9", "limiter/redisstore",
		"a service without Redis does not build it"},
}

// A pkg is what go list says of a package.
type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string // imported by it and by its imports
	Module     *struct{ Path string }
}

// own returns the path within this module, and whether it is of this module.
func own(path string) (string, bool) { return strings.CutPrefix(path, module) }

// arrowOf returns the arrow of a package, and whether it has one.
func arrowOf(name string) (arrow, bool) {
	i := slices.IndexFunc(arrows, func(a arrow) bool { return a.from == name })
	if i < 0 {
		return arrow{}, false
	}
	return arrows[i], true
}

// violations returns what is against the rules, with the reasons, sorted.
// Examples, and test equipment without an arrow, may import what they like; what
// has an arrow may not import them.
func violations(all map[string]pkg) []string {
	var found []string
	for path, p := range all {
		name, ok := own(path)
		a, ruled := arrowOf(name)
		switch {
		case !ok, strings.HasPrefix(name, "examples/"),
			!ruled && strings.HasPrefix(name, "internal/"):
			continue
		case !ruled:
			found = append(found, name+" has no arrow: say in arrows what it may import, and why")
			continue
		}
		for _, imported := range p.Imports {
			if reason := a.forbids(all[imported]); reason != "" {
				found = append(found, name+" imports "+imported+reason)
			}
		}
		if name != "limiter/storetest" && slices.Contains(p.Deps, "testing") {
			found = append(found, name+" depends on testing: its flags have no place in a "+
				"service, and storetest is the one package for tests")
		}
	}
	slices.Sort(found)
	return found
}

// forbids returns why the package at the arrow's foot may not import p, or "".
func (a arrow) forbids(p pkg) string {
	if to, ok := own(p.ImportPath); ok {
		_, ruled := arrowOf(to)
		internal := ruled && strings.HasPrefix(to, "internal/") &&
			!strings.HasPrefix(to, "internal/lab/") && slices.Contains(a.to, "internal")
		if internal || slices.Contains(a.to, to) {
			return ""
		}
		return ": " + a.reason
	}
	if p.Module == nil {
		return "" // the standard library
	}
	for _, o := range owners {
		switch {
		case o.module != p.Module.Path:
		case o.owner == a.from:
			return ""
		default:
			return fmt.Sprintf(", which is for %s alone: %s", o.owner, o.reason)
		}
	}
	return ": say in owners which one package may, and why"
}

func TestPackages_FollowTheArrows(t *testing.T) {
	all := list(t)
	for _, a := range arrows {
		assert.NotEmpty(t, all[module+a.from].ImportPath, "%s has an arrow and does not exist", a.from)
	}
	for _, violation := range violations(all) {
		t.Error(violation)
	}
}

// list returns the packages of this module and all that they are built on.
func list(t *testing.T) map[string]pkg {
	t.Helper()
	const root = "../../.."
	watch(t, root)
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Deps,Module", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		t.Fatalf("go list: %s", failed.Stderr)
	}
	require.NoError(t, err)
	all := map[string]pkg{}
	for packages := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := packages.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all[p.ImportPath] = p
	}
}

// watch reads the directories itself, so that go test does not repeat a cached
// pass once a file has changed: what go list reads, it does not see.
func watch(t *testing.T, root string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == ".git" {
			return filepath.SkipDir
		}
		return err
	}))
}

func TestViolations_AreSeen(t *testing.T) {
	const chi, zap = "github.com/go-chi/chi/v5", "go.uber.org/zap"
	const httpsnoop = "github.com/felixge/httpsnoop"
	tests := []struct {
		name    string
		from    string
		imports string
		want    string // a prefix; empty: nothing
	}{
		{"inward", "middleware", module + "keying", ""},
		{"to-internal", "limiter", module + "internal/account", ""},
		{"standard-library", "limiter", "net/http", ""},
		{"owner", "keying/chiroute", chi, ""},
		{"example", "examples/zap", zap, ""},
		{"test-equipment", "internal/testserver", zap, ""},
		{"storetest", "limiter/storetest", "testing", ""},
		{"outward", "limiter", module + "keying",
			"limiter imports " + module + "keying: the core knows"},
		{"sideways", "keying", module + "middleware",
			"keying imports " + module + "middleware: who calls"},
		{"between-internals", "internal/account", module + "internal/instant",
			"internal/account imports " + module + "internal/instant: the arithmetic"},
		{"test-equipment-in-library", "limiter", module + "internal/testserver",
			"limiter imports " + module + "internal/testserver: the core knows"},
		{"example-in-library", "middleware", module + "examples/zap",
			"middleware imports " + module + "examples/zap: net/http users"},
		{"not-the-owner", "middleware", chi,
			"middleware imports " + chi + ", which is for keying/chiroute alone: a service"},
		{"internals-of-adapters", "middleware", module + "internal/misuse", ""},
		{"store-on-storekit", "limiter/redisstore", module + "limiter/storekit", ""},
		{"core-on-storekit", "limiter", module + "limiter/storekit",
			"limiter imports " + module + "limiter/storekit: the core knows"},
		{"hidden-from-other-adapters", "grpcinterceptor", module + "internal/callerkey",
			"grpcinterceptor imports " + module + "internal/callerkey: gRPC users"},
		{"lab-in-library", "limiter/memstore", module + "internal/lab/oracle",
			"limiter/memstore imports " + module + "internal/lab/oracle: a store depends"},
		{"lab-in-storetest", "limiter/storetest", module + "internal/lab/oracle", ""},
		{"not-the-owner-of-httpsnoop", "grpcinterceptor", httpsnoop,
			"grpcinterceptor imports " + httpsnoop + ", which is for middleware alone: it wraps"},
		{"no-owner", "keying", zap, "keying imports " + zap + ": say in owners"},
		{"testing", "limiter/memstore", "testing", "limiter/memstore depends on testing: its flags"},
		{"no-arrow", "extra", "fmt", "extra has no arrow: say in arrows"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			imported := pkg{ImportPath: tt.imports}
			if slices.Contains([]string{chi, zap, httpsnoop}, tt.imports) {
				imported.Module = &struct{ Path string }{tt.imports}
			}
			deps := []string{tt.imports}
			got := strings.Join(violations(map[string]pkg{
				tt.imports:       imported,
				module + tt.from: {ImportPath: module + tt.from, Imports: deps, Deps: deps},
			}), "\n")
			if tt.want == "" {
				assert.Empty(t, got)
			}
			assert.True(t, strings.HasPrefix(got, tt.want), got)
		})
	}
}
