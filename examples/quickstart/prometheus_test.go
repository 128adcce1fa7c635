package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ration-go/ration/examples/internal/service"
	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// startPrometheus starts the server that PROMETHEUS names, on the quickstart's own
// configuration but for the address that it scrapes and how often. It returns its address.
func startPrometheus(t *testing.T, scraped string) string {
	t.Helper()
	program := os.Getenv("PROMETHEUS")
	if program == "" {
		t.Skip("PROMETHEUS is not set: make test-prometheus")
	}
	dir := t.TempDir()
	config := replaced(t, "prometheus.yml", "127.0.0.1:9081", scraped, "15s", "200ms")
	for name, text := range map[string]string{
		"prometheus.yml": config, "rules.yml": replaced(t, "rules.yml"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	addr := redistest.FreeAddr(t)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--config.file", filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", addr)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("prometheus:\n%s", text)
		}
	})
	return addr
}

// replaced returns the text of a file with pairs of texts replaced.
func replaced(t *testing.T, file string, pairs ...string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(pairs...).Replace(string(text))
}

// query returns the values of an instant query.
func query(t *testing.T, addr, expr string) ([]string, error) {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", expr, answer.Error)
	}
	values := []string{}
	for _, r := range answer.Data.Result {
		values = append(values, fmt.Sprint(r.Value[1]))
	}
	return values, nil
}

// eventually repeats what does not hold yet.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
		time.Sleep(50 * time.Millisecond) // Prometheus works by its own clock
	}
}

// newService returns the service with accounts in memory, or of users in Redis.
func newService(t *testing.T, users limiter.Store) *service.Service {
	t.Helper()
	memory := limiter.Must(memstore.New(memstore.Config{}))
	if users == nil {
		users = memory
	}
	s, err := service.New(users, memory)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sent tells addresses apart.
var sent atomic.Uint32

// send sends a request of a user, each from another address, so that none is refused by
// its address.
func send(s http.Handler, user, path string) int {
	n := sent.Add(1)
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr = fmt.Sprintf("10.%d.%d.%d:1", byte(n>>16), byte(n>>8), byte(n))
	r.Header.Set("Authorization", "Bearer "+user+"-token")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code
}

// Every query of the dashboard runs against a Prometheus that scrapes the quickstart, and
// finds what there is: accounts of users are in Redis, so that there are store metrics.
func TestPrometheus_RunsTheQueriesOfTheDashboard(t *testing.T) {
	if os.Getenv("PROMETHEUS") == "" {
		t.Skip("PROMETHEUS is not set: make test-prometheus")
	}
	server := redistest.Start(t)
	s := newService(t, limiter.Must(service.Shared(server.Addr, 1)))
	operators := httptest.NewServer(s.Operators)
	t.Cleanup(operators.Close)
	if resp, err := http.Post(operators.URL+"/trial?limit=3/1m", "", nil); err != nil || resp.StatusCode != 200 {
		t.Fatalf("trial: %v %v", resp, err)
	}
	addr := startPrometheus(t, strings.TrimPrefix(operators.URL, "http://"))
	eventually(t, "a rate of refusals", func() bool {
		for i := range 6 {
			send(s, "alice", fmt.Sprint("/v1/exports/", i))
			send(s, "nobody", "/v1/summaries/1")
		}
		values, err := query(t, addr, `ration:budget_refusals:ratio_rate5m{budget="exports"} > 0`)
		return err == nil && len(values) == 1
	})

	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(replaced(t, "dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	if len(dashboard.Panels) < 10 {
		t.Fatalf("%d panels", len(dashboard.Panels))
	}
	variables := strings.NewReplacer("$__rate_interval", "1m", "$limiter", ".*")
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			expr := variables.Replace(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("%s: a variable that Grafana does not have: %s", panel.Title, expr)
			}
			if values, err := query(t, addr, expr); err != nil || len(values) == 0 {
				t.Errorf("%s: %v, %v", panel.Title, values, err)
			}
		}
	}
	if values, err := query(t, addr, `up{job="quickstart"}`); err != nil || len(values) != 1 || values[0] != "1" {
		t.Errorf("up: %v, %v", values, err)
	}
}

// shell finds the commands of the runbook.
var shell = regexp.MustCompile("(?ms)^## (.*?)$|^```sh\n(.*?)^```$")

// The commands of the runbook are run as they are written, but for the addresses, beside
// 50,000 users of whom three run into their limits most.
func TestPrometheus_TheRunbookAnswersItsQuestions(t *testing.T) {
	if os.Getenv("PROMETHEUS") == "" {
		t.Skip("PROMETHEUS is not set: make test-prometheus")
	}
	s := newService(t, nil)
	public, operators := httptest.NewServer(s), httptest.NewServer(s.Operators)
	t.Cleanup(public.Close)
	t.Cleanup(operators.Close)
	addr := startPrometheus(t, strings.TrimPrefix(operators.URL, "http://"))
	load(s)
	another := 80_000
	eventually(t, "a rate of refusals", func() bool {
		another++
		for range 9 {
			send(s, fmt.Sprint("user-", another), "/v1/exports/7")
		}
		near, err := query(t, addr, `ration:budget_near_limit:ratio_rate5m > 0`)
		if err != nil || len(near) == 0 {
			return false
		}
		increased, err := query(t, addr, `increase(ration_requests_total{outcome="deny"}[5m]) > 0`)
		return err == nil && len(increased) > 0
	})

	want := map[string][]string{ // what the commands print, by question
		"1.":  {`"limiter": "user"`, `"refusals"`}, // the three are below
		"2.":  {`budget="exports"`, `GET /v1/exports/{id}`},
		"3.":  {`"budget": "exports"`, `"limit": "1/1s burst=2"`, `"remaining"`},
		"4.":  {`limiter="user"`, `"near_limit"`},
		"5.":  {"ration_accounts{", "ration_overflow_total{"},
		"6.":  {"3 budgets", `"budget": "trial"`, `outcome="shadow_deny"} 2`, "2 budgets"},
		"7.":  {"bob: block for 10m0s", "HTTP/1.1 429", "Retry-After: 600", "bob: the budgets decide"},
		"8.":  {"alice: exempt for 1h0m0s", "200\n200\n200\n200\n200\n"},
		"9.":  {"full again"},
		"10.": {"SUCCESS"},
	}
	addresses := strings.NewReplacer(
		"127.0.0.1:8080", strings.TrimPrefix(public.URL, "http://"),
		"127.0.0.1:9081", strings.TrimPrefix(operators.URL, "http://"), "127.0.0.1:9090", addr)
	number := ""
	for _, found := range shell.FindAllStringSubmatch(replaced(t, "README.md"), -1) {
		if found[1] != "" {
			number, _, _ = strings.Cut(found[1], " ")
			continue
		}
		cmd := exec.Command("bash", "-ec", addresses.Replace(found[2]))
		cmd.Dir = "../.." // as in a clone
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s %v\n%s", number, err, out)
		}
		for _, text := range want[number] {
			if !strings.Contains(string(out), text) {
				t.Errorf("%s lacks %q:\n%s", number, text, out)
			}
		}
		if number == "1." {
			planted(t, out)
		}
		delete(want, number)
	}
	if len(want) > 0 {
		t.Errorf("no commands answer %v", want)
	}
}

// load is a minute of 50,000 users: all of them read, and three export far too much, as
// some others do a little.
func load(s http.Handler) {
	for i := range 50_000 {
		user := fmt.Sprint("user-", i)
		send(s, user, fmt.Sprint("/v1/summaries/", i))
		if i%16 == 0 {
			for range 4 {
				send(s, user, fmt.Sprint("/v1/exports/", i))
			}
		}
		if i%250 == 0 {
			for k, heavy := range []string{"user-70001", "user-70002", "user-70003"} {
				for range 9 + k {
					send(s, heavy, fmt.Sprint("/v1/exports/", i))
				}
			}
		}
	}
}

// planted holds the answer to the first question to the three users that were planted.
func planted(t *testing.T, out []byte) {
	t.Helper()
	var budgets []struct {
		Budget   string
		Refusals struct{ Callers []struct{ ID string } }
	}
	if err := json.Unmarshal(out, &budgets); err != nil || len(budgets) != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := fmt.Sprint(budgets[0].Refusals.Callers); got != "[{user-70003} {user-70002} {user-70001}]" {
		t.Errorf("the three with the most refusals are %s", got)
	}
}

// The rules are valid, and do what rules_test.yml says.
func TestPrometheus_RulesAreTested(t *testing.T) {
	if os.Getenv("PROMETHEUS") == "" {
		t.Skip("PROMETHEUS is not set: make test-prometheus")
	}
	for _, args := range [][]string{
		{"check", "config", "prometheus.yml"}, {"test", "rules", "rules_test.yml"},
	} {
		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
