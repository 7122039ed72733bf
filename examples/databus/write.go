// Writes orders to a sidecar with nothing but Go's standard library: go run write.go [URL]
package main

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"
)

type message struct {
	Key  string `json:"key,omitempty"`
	JSON any    `json:"json"`
}

type result struct {
	Status    int    `json:"status"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`
	Error     string `json:"error"`
}

type answer struct {
	Results []result `json:"results"`
	Error   string   `json:"error"`
}

// write sends the messages in one request, again with the same key where no answer came or the sidecar has too much to
// do: it writes them once.
func write(url, channel string, messages []message) ([]result, error) {
	body, err := json.Marshal(messages)
	if err != nil {
		return nil, err
	}
	key := make([]byte, 16)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	var last error
	for try := range 8 {
		if try > 0 {
			time.Sleep(100 * time.Millisecond << try)
		}
		request, err := http.NewRequest("POST", url+"/v1/channels/"+channel+"/messages", bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", `"`+hex.EncodeToString(key)+`"`)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			last = err
			continue
		}
		var found answer
		err = json.NewDecoder(response.Body).Decode(&found)
		response.Body.Close()
		switch {
		case err == nil && found.Results != nil:
			return found.Results, nil
		case response.StatusCode == 408 || response.StatusCode == 409 || response.StatusCode == 429 || response.StatusCode >= 502:
			last = fmt.Errorf("%s: %s", response.Status, found.Error)
		default:
			return nil, fmt.Errorf("%s: %s", response.Status, found.Error)
		}
	}
	return nil, last
}

func main() {
	url := "http://127.0.0.1:8600"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	results, err := write(url, "orders", []message{
		{Key: "4711", JSON: map[string]any{"total": 5}},
		{Key: "4712", JSON: map[string]any{"total": 7}},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, one := range results { // the request's status hides none that failed
		if one.Status != 200 && one.Status != 202 {
			fmt.Fprintf(os.Stderr, "%d: %s\n", one.Status, one.Error)
			os.Exit(1)
		}
		fmt.Printf("written to partition %d at offset %d\n", one.Partition, one.Offset)
	}
}
