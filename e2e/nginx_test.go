package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// deployed is the directory of the files for users to run; stories know it as $DEPLOY.
const deployed = "../deploy"

// nginx [-c FILE] NAME API[,API] SERVICE
//
// runs deploy/nginx/nginx.conf, or another such file, on a free port; $NAME is its URL. The
// addresses in the file are replaced by the URLs of the api processes and of the service that they
// guard.
func nginxCommand(s *story, args []string) error {
	flags := newFlags("nginx")
	source := flags.String("c", "", "")
	if err := flags.Parse(args); err != nil || flags.NArg() != 3 {
		return errors.New("usage: nginx [-c FILE] NAME API[,API] SERVICE")
	}
	if *source == "" {
		*source = filepath.Join(deployed, "nginx", "nginx.conf")
	} else {
		*source = s.ts.MkAbs(*source)
	}
	name, apis, service := flags.Arg(0), flags.Arg(1), flags.Arg(2)
	binary, err := findNginx()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(*source)
	if err != nil {
		return err
	}
	home := s.ts.MkAbs(name)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return err
	}
	for range 8 { // nginx can't choose a free port itself
		url, conf, err := nginxConfig(string(text), home, strings.Split(apis, ","), service)
		if err != nil {
			return fmt.Errorf("%s: %w", *source, err)
		}
		taken, err := s.startNginx(name, binary, home, conf)
		if err != nil {
			return err
		}
		if !taken {
			s.ts.Setenv(name, url)
			return nil
		}
	}
	return errors.New("every port that seemed free was taken by another process")
}

// nginxConfig returns a config with a listener on a port that is free now, and with the story's
// addresses and directories.
func nginxConfig(text, home string, apis []string, service string) (url, conf string, err error) {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(nginxPort()))
	for _, change := range [][2]string{
		{"listen 80;", "listen " + addr + ";"},
		{"server 127.0.0.1:8080;", upstream(apis)},
		{"server 127.0.0.1:9000;", upstream([]string{service})},
		{"http {\n", "http {\n" + temporary(home)},
	} {
		if text, err = replaceOnce(text, change[0], change[1]); err != nil {
			return "", "", err
		}
	}
	return "http://" + addr, text, nil
}

// nginxPort returns a port that is free now. It is below those of redistest, and far below those of
// outgoing connections.
func nginxPort() int {
	for {
		port := 10000 + rand.IntN(2000)
		if l, err := net.Listen("tcp",
			net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			l.Close()
			return port
		}
	}
}

// startNginx waits until nginx serves. taken is true if another process took its port first.
func (s *story) startNginx(name, binary, home, conf string) (taken bool, err error) {
	file := filepath.Join(home, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o644); err != nil {
		return false, err
	}
	p := s.processes[name]
	if p == nil {
		p = &process{name: name}
		s.processes[name] = p
	}
	// One process, so that killing it leaves none behind.
	options := "daemon off; master_process off; pid " + filepath.Join(home, "pid") +
		"; error_log stderr notice;"
	if err := p.start(binary, []string{"-p", home, "-c", file, "-g", options}, s.env,
		home); err != nil {
		return false, err
	}
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(pollEvery) {
		said := p.log.sinceMark()
		switch {
		case bytes.Contains(said, []byte("Address already in use")):
			p.kill()
			return true, nil
		case bytes.Contains(said, []byte(`using the "`)): // as in: using the "epoll" event method
			return false, nil
		case !p.running():
			return false, fmt.Errorf("%s ended before it served: %s", name, said)
		case time.Now().After(deadline):
			return false, fmt.Errorf("%s doesn't serve within %v", name, startTimeout)
		}
	}
}

// upstream returns the lines of an nginx upstream.
func upstream(urls []string) string {
	var lines strings.Builder
	for _, url := range urls {
		fmt.Fprintf(&lines, "server %s;\n", strings.TrimPrefix(url, "http://"))
	}
	return lines.String()
}

// findNginx also looks where Debian installs it, which is only on root's PATH.
func findNginx() (string, error) {
	for _, name := range []string{"nginx", "/usr/sbin/nginx", "/usr/local/sbin/nginx"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("this story needs nginx, for example: " +
		"sudo apt-get install nginx-light, or brew install nginx")
}

// temporary makes nginx write its temporary files into the story's own directory.
func temporary(home string) string {
	var lines strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&lines, "    %s_temp_path %s;\n", kind, filepath.Join(home, kind))
	}
	return lines.String()
}

// edit FILE OLD NEW|@FILE
//
// replaces a text that is in the file exactly once, by another one or by the content of another
// file.
func editCommand(s *story, args []string) error {
	if len(args) != 3 {
		return errors.New("usage: edit FILE OLD NEW|@FILE")
	}
	text := args[2]
	if source, ok := strings.CutPrefix(text, "@"); ok {
		text = s.ts.ReadFile(source)
	}
	edited, err := replaceOnce(s.ts.ReadFile(args[0]), args[1], text)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return os.WriteFile(s.ts.MkAbs(args[0]), []byte(edited), 0o644)
}

func replaceOnce(text, old, to string) (string, error) {
	if n := strings.Count(text, old); n != 1 {
		return "", fmt.Errorf("%q is there %d times, want once", old, n)
	}
	return strings.Replace(text, old, to, 1), nil
}
